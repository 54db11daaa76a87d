/* Does with memory what online placement must not disturb, for about ARGUMENT 1 seconds (default 2) or until SIGTERM, in 4
 * threads: memory that the main thread initialised is written by others, by system calls too; a handler of SIGSEGV gets
 * faults of its own; children are forked that share pages; a region has huge pages. Checks all of it, prints "right" and
 * ends with 7, or says what is wrong. With an ARGUMENT 2 it goes on, for that many seconds at most, until one of its pages is on
 * another node than before: of pages that no child shares, because the kernel does not move shared ones. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 4, PAGE = 4096, PAGES = 128, HUGE = 2 << 20 };
static unsigned char *part[THREADS], *alone[THREADS], *huge;
static int first_node[THREADS][PAGES];
static atomic_int moved;
static double length = 2, longest_wait;
static atomic_int wrong;
static volatile sig_atomic_t asked_to_end;
static __thread sigjmp_buf back;
static __thread volatile sig_atomic_t expected;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void is_wrong(const char *what)
{
    wrong++;
    fprintf(stderr, "wrong: %s\n", what);
}

static void on_fault(int signal)
{
    if (!expected)
        _exit(99);
    (void)signal;
    siglongjmp(back, 1);
}

static void on_end(int signal)
{
    (void)signal;
    asked_to_end = 1;
}

/* A write to memory without rights calls the handler, every time. */
static void faults(volatile char *guard)
{
    expected = 1;
    if (!sigsetjmp(back, 1)) {
        *guard = 1;
        is_wrong("a write to a guard page did not fault");
    }
    expected = 0;
}

static void system_calls(unsigned char *memory, int zero, const int *ends, unsigned char round)
{
    for (int page = 0; page < PAGES; page += 8) {
        unsigned char *at = memory + page * PAGE;
        if (read(zero, at, PAGE) != PAGE)
            is_wrong("read into a page");
        memset(at, round, PAGE);
        if (write(ends[1], at, PAGE) != PAGE || read(ends[0], at + PAGE, PAGE) != PAGE)
            is_wrong("a pipe from a page to the next");
        if (at[PAGE] != round || at[2 * PAGE - 1] != round)
            is_wrong("bytes that went through a pipe");
    }
}

static void children(unsigned char *memory)
{
    unsigned char before = memory[0];
    pid_t child = fork();
    if (child == 0) {
        for (int page = 0; page < PAGES; page++)
            memory[page * PAGE] = before + 1;
        _exit(memory[0] == (unsigned char)(before + 1) ? 0 : 1);
    }
    int status = 1;
    if (child < 0 || waitpid(child, &status, 0) != child || status)
        is_wrong("a child");
    if (memory[0] != before)
        is_wrong("a child changed its parent");
}

/* The nodes of a thread's pages that no child shares. */
static void locate(long number, int *node)
{
    void *page[PAGES];
    for (int at = 0; at < PAGES; at++)
        page[at] = alone[number] + at * PAGE;
    if (syscall(SYS_move_pages, 0, (long)PAGES, page, NULL, node, 0))
        is_wrong("nodes of pages");
}

static void look_for_moves(long number)
{
    int node[PAGES];
    locate(number, node);
    for (int at = 0; at < PAGES; at++)
        if (node[at] >= 0 && node[at] != first_node[number][at])
            moved = 1;
}

static void *run(void *argument)
{
    long number = (long)argument;
    unsigned char *memory = part[number], *mine = huge + number * HUGE;
    int ends[2], zero = open("/dev/zero", O_RDONLY);
    char *guard = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (zero < 0 || pipe(ends) || guard == MAP_FAILED)
        is_wrong("set-up");
    double end = now() + length;
    for (unsigned round = 1; !asked_to_end; round++) {
        double after_end = now() - end;
        if (after_end >= longest_wait || (after_end >= 0 && moved))
            break;
        for (int page = 0; page < PAGES; page++) {
            memset(memory + page * PAGE, (int)(round + page), PAGE);
            memset(alone[number] + page * PAGE, (int)(round + page), PAGE);
        }
        for (size_t at = 0; at < HUGE; at += 64)
            mine[at] = (unsigned char)(round + at / 64);
        for (int page = 0; page < PAGES; page++)
            if (memory[page * PAGE + 17] != (unsigned char)(round + page) ||
                alone[number][page * PAGE + 17] != (unsigned char)(round + page))
                is_wrong("a byte");
        for (size_t at = 0; at < HUGE; at += 64)
            if (mine[at] != (unsigned char)(round + at / 64))
                is_wrong("a byte of a huge page");
        system_calls(memory, zero, ends, (unsigned char)round);
        faults(guard);
        if (number == 0 && round % 8 == 0)
            children(memory);
        if (longest_wait > 0 && !moved)
            look_for_moves(number);
    }
    close(zero);
    close(ends[0]);
    close(ends[1]);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        length = atof(argv[1]);
    if (argc > 2)
        longest_wait = atof(argv[2]);
    struct sigaction action = { .sa_handler = on_fault, .sa_flags = SA_NODEFER };
    sigaction(SIGSEGV, &action, NULL);
    struct sigaction end = { .sa_handler = on_end, .sa_flags = SA_RESTART };
    sigaction(SIGTERM, &end, NULL);
    huge = mmap(NULL, (THREADS + 1) * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    huge = (unsigned char *)(((uintptr_t)huge + HUGE - 1) / HUGE * HUGE);
    madvise(huge, THREADS * HUGE, MADV_HUGEPAGE);
    memset(huge, 1, THREADS * HUGE);
    pthread_t thread[THREADS];
    for (int number = 0; number < THREADS; number++) {
        part[number] = mmap(NULL, PAGES * PAGE + 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(part[number], 1, PAGES * PAGE);
        alone[number] = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        madvise(alone[number], PAGES * PAGE, MADV_DONTFORK);
        memset(alone[number], 1, PAGES * PAGE);
        if (longest_wait > 0)
            locate(number, first_node[number]);
    }
    for (long number = 0; number < THREADS; number++)
        pthread_create(&thread[number], NULL, run, (void *)number);
    for (int number = 0; number < THREADS; number++)
        pthread_join(thread[number], NULL);
    if (longest_wait > 0 && !moved)
        is_wrong("no page has moved");
    if (wrong)
        return 1;
    puts("right");
    return 7;
}
