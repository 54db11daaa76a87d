// Code that changes where no write to its address shows it: by a second mapping, by files, by the kernel, by another process.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int (*function)(void);

enum { READ = PROT_READ, WRITE = PROT_READ | PROT_WRITE, RUN = PROT_READ | PROT_EXEC, PAGE = 4096 };

// mov $value, %eax; ret
static unsigned char code[6] = {0xb8, 0, 0, 0, 0, 0xc3};

static unsigned char *made(int value) {
    memcpy(code + 1, &value, 4);
    return code;
}

static int run(void *at) {
    int sum = 0;
    for (int n = 0; n < 50; ++n)
        sum += ((function)at)();
    return sum / 50;
}

static void *map(int protection, int flags, int file) {
    void *at = mmap(NULL, PAGE, protection, flags, file, 0);
    if (at == MAP_FAILED)
        exit(3);
    return at;
}

__attribute__((noinline, aligned(64))) static int patched(void) {
    __asm__ volatile("");
    return 1;
}

static void by_mappings(void) {
    int file = memfd_create("code", 0);
    if (ftruncate(file, PAGE))
        exit(2);
    unsigned char *data = map(WRITE, MAP_SHARED, file), *text = map(RUN, MAP_SHARED, file);
    unsigned char *copy = map(RUN, MAP_PRIVATE, file);
    for (int n = 0; n < 5; ++n) {
        memcpy(data + n % 2 * 64, made(n), 6);
        printf("%d %d ", run(text + n % 2 * 64), run(copy + n % 2 * 64));
    }
    // A mapping that becomes executable, and one that comes later.
    mprotect(data, PAGE, RUN);
    unsigned char *later = map(WRITE, MAP_SHARED, file);
    for (int n = 7; n < 10; ++n) {
        memcpy(later, made(n), 6);
        printf("%d %d ", run(data), run(text));
    }
    if (pwrite(file, made(11), 6, 0) != 6)
        exit(2);
    printf("%d\n", run(data));
    // Anonymous memory, mapped twice, and moved.
    unsigned char *one = map(RUN | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1);
    unsigned char *two = mremap(one, 0, PAGE, MREMAP_MAYMOVE);
    for (int n = 20; n < 23; ++n) {
        memcpy(two, made(n), 6);
        printf("%d ", run(one));
    }
    unsigned char *moved = mremap(one, PAGE, 2 * PAGE, MREMAP_MAYMOVE);
    memcpy(two, made(25), 6);
    printf("%d\n", run(moved));
    // An instruction that changes the next one by another mapping: movb $9, 1(next); next: mov $1, %eax.
    static const unsigned char self[] = {0xc6, 0x05, 0x01, 0, 0, 0, 9, 0xb8, 1, 0, 0, 0, 0xc3};
    unsigned char *both = map(RUN | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1);
    memcpy(both, self, sizeof self);
    printf("%d\n", run(both));
}

static void by_files(void) {
    char name[] = "/tmp/numaloc-rewritten-XXXXXX";
    int file = mkstemp(name);
    if (write(file, made(31), 6) != 6 || ftruncate(file, PAGE))
        exit(2);
    close(file);
    file = open(name, O_RDONLY);
    unsigned char *text = map(RUN, MAP_PRIVATE, file);
    printf("%d ", run(text));
    int other = open(name, O_RDWR);
    if (pwrite(other, made(32), 6, 0) != 6)
        exit(2);
    printf("%d ", run(text));
    lseek(other, 0, SEEK_SET);
    if (write(other, made(33), 6) != 6)
        exit(2);
    printf("%d ", run(text));
    unsigned char *data = map(WRITE, MAP_SHARED, other);
    memcpy(data, made(34), 6);
    printf("%d\n", run(text));
    unlink(name);
}

static void by_the_kernel(void) {
    printf("%d ", run(patched));
    int memory = open("/proc/self/mem", O_RDWR);
    if (pwrite(memory, made(41), 6, (off_t)patched) != 6)
        exit(2);
    printf("%d ", run(patched));
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d/mem", getpid(), getpid());
    int again = dup(open(path, O_WRONLY));
    struct iovec parts[] = {{made(42), 3}, {code + 3, 3}};
    if (lseek(again, (off_t)patched, SEEK_SET) < 0 || writev(again, parts, 2) != 6)
        exit(2);
    printf("%d ", run(patched));
    mprotect((void *)((long)patched & -PAGE), 2 * PAGE, RUN | PROT_WRITE);
    struct iovec from = {made(43), 6}, to = {patched, 6};
    printf("%d ", run(patched));
    if (process_vm_writev(getpid(), &from, 1, &to, 1, 0) != 6)
        exit(2);
    printf("%d ", run(patched));
    int ends[2];
    if (pipe(ends) || write(ends[1], made(44), 6) != 6 || read(ends[0], patched, 6) != 6)
        exit(2);
    printf("%d\n", run(patched));
    // Memory given back reads as zero: add %al, (%rax) many times, then a return that was there again.
    unsigned char *page = map(RUN | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    memcpy(page, made(51), 6);
    printf("%d ", run(page));
    madvise(page, PAGE, MADV_DONTNEED);
    memcpy(page + 6, made(52), 6);
    memcpy(page, "\x90\x90\x90\x90\x90\x90", 6);
    printf("%d\n", run(page));
}

static void by_processes(void) {
    unsigned char *text = map(RUN | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1);
    memcpy(text, made(61), 6);
    printf("%d ", run(text));
    fflush(stdout);
    if (fork() == 0) {
        memcpy(text, made(62), 6);
        printf("%d ", run(text));
        fflush(stdout);
        _exit(0);
    }
    wait(NULL);
    printf("%d\n", run(text));
    int id = shmget(IPC_PRIVATE, PAGE, 0700);
    unsigned char *data = shmat(id, NULL, 0), *segment = shmat(id, NULL, SHM_EXEC);
    shmctl(id, IPC_RMID, NULL);
    for (int n = 71; n < 74; ++n) {
        memcpy(data, made(n), 6);
        printf("%d ", run(segment));
    }
    puts("");
}

int main(void) {
    by_mappings();
    by_files();
    by_the_kernel();
    by_processes();
    // A page that is written often, in which there is a loop that must not be left behind.
    unsigned char *page = map(RUN | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    // mov $n, %ecx; xor %eax, %eax; add $step, %eax; dec %ecx; jne back; ret
    unsigned char loop[] = {0xb9, 0, 0, 0, 0, 0x31, 0xc0, 0x83, 0xc0, 0, 0xff, 0xc9, 0x75, 0xf9, 0xc3};
    long sum = 0;
    for (int n = 1; n < 400; ++n) {
        loop[1] = n % 100 + 1;
        loop[9] = n % 7;
        memcpy(page + n % 3 * 32, loop, sizeof loop);
        sum += ((function)(page + n % 3 * 32))();
        page[2048 + n] = n;
    }
    printf("%ld\n", sum);
}
