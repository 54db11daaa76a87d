// What a program can find out of itself.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

// Protection and name, without folders, of the mapping that contains an address.
static void show_mapping(const char *list, const void *address) {
    FILE *maps = fopen(list, "re");
    char line[8192];
    const char *protection = "none", *name = "";
    char found[8], path[8192];
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long start, end;
        path[0] = 0;
        sscanf(line, "%lx-%lx %7s %*s %*s %*s %8191s", &start, &end, found, path);
        if ((unsigned long)address >= start && (unsigned long)address < end) {
            protection = found;
            name = strrchr(path, '/') ? strrchr(path, '/') : path;
            break;
        }
    }
    printf("%s %s\n", protection, name);
    if (maps) fclose(maps);
}

static void show_mappings(void) {
    char list[64];
    snprintf(list, sizeof list, "/proc/%d/maps", (int)getpid());
    enum { PAGE = 4096 };
    char *memory = mmap(0, 5 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(memory + PAGE, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
    mprotect(memory + 2 * PAGE, PAGE, PROT_READ | PROT_EXEC);
    munmap(memory + 3 * PAGE, PAGE);
    show_mapping("/proc/self/maps", (void *)show_mappings);
    show_mapping("/proc/thread-self/maps", (void *)printf);
    show_mapping(list, list);
    for (int page = 0; page < 5; page++) show_mapping(list, memory + page * PAGE);
    char *code = mmap(0, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    // A function that returns, whose page cannot be written while it is in the cache.
    *code = (char)0xc3;
    ((void (*)(void))code)();
    show_mapping(list, code);
    char *moved = mremap(memory, PAGE, 1000 * PAGE, MREMAP_MAYMOVE);
    show_mapping(list, moved + 999 * PAGE);
    show_mapping(list, moved == memory ? memory + 3 * PAGE : memory);
    // Nothing of a recorder.
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[8192];
    unsigned long start, end, all = 0;
    int foreign = 0;
    while (maps && fgets(line, sizeof line, maps)) {
        sscanf(line, "%lx-%lx", &start, &end);
        all += end - start;
        foreign += strstr(line, "numaloc-native") != 0 || strstr(line, ".journal") != 0;
    }
    printf("%d %d\n", all < 1ul << 30, foreign);
}

// What the kernel keeps of the start agrees with what the program was given.
static void show_start(char **argv) {
    unsigned long entry[2];
    int differ = 0, known = 0;
    FILE *vector = fopen("/proc/self/auxv", "rb");
    while (vector && fread(entry, sizeof entry, 1, vector) == 1 && entry[0])
        if (entry[0] == AT_PHDR || entry[0] == AT_PHNUM || entry[0] == AT_BASE || entry[0] == AT_ENTRY ||
            entry[0] == AT_EXECFN || entry[0] == AT_RANDOM)
            known++, differ += getauxval(entry[0]) != entry[1];
    char line[4096] = "";
    FILE *stat = fopen("/proc/self/stat", "r");
    char *field = stat && fgets(line, sizeof line, stat) ? strrchr(line, ')') + 2 : line;
    for (int i = 3; i < 28; i++) field = strchr(field, ' ') + 1;
    printf("%d of %d differ, stack %ld\n", differ, known, (long)((char *)(argv - 1) - (char *)strtoul(field, 0, 10)));
}

int main(int argc, char **argv) {
    show_mappings();
    show_start(argv);
    char name[4096], comm[16];
    ssize_t len = readlink("/proc/self/exe", name, sizeof name - 1);
    name[len < 0 ? 0 : len] = 0;
    printf("%s %d %s\n", strrchr(name, '/'), argc, strrchr(argv[0], '/'));
    prctl(PR_GET_NAME, comm);
    printf("%s\n", comm);
    printf("%s\n", strrchr((char *)getauxval(AT_EXECFN), '/'));
    FILE *self = fopen("/proc/self/exe", "rb");
    char magic[4];
    printf("%d\n", self && fread(magic, 1, 4, self) == 4 && memcmp(magic, "\177ELF", 4) == 0);
    struct stat of_link, of_file;
    struct statx more;
    stat("/proc/self/exe", &of_link), stat(argv[0], &of_file), statx(AT_FDCWD, "/proc/self/exe", 0, STATX_INO, &more);
    printf("%d %d\n", of_link.st_ino == of_file.st_ino, more.stx_ino == of_file.st_ino);
    pthread_attr_t attributes;
    pthread_getattr_np(pthread_self(), &attributes);
    void *base;
    size_t size;
    pthread_attr_getstack(&attributes, &base, &size);
    printf("%d\n", (char *)&size > (char *)base && (char *)&size < (char *)base + size);
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    clock_gettime(CLOCK_MONOTONIC, &b);
    printf("%d\n", b.tv_sec > a.tv_sec || b.tv_nsec >= a.tv_nsec);
    printf("%s\n", getenv("LD_PRELOAD") ? getenv("LD_PRELOAD") : "none");
    struct sigaction action;
    sigaction(SIGPIPE, NULL, &action);
    printf("%d\n", action.sa_handler == SIG_DFL);
    void *first = sbrk(0), *second = sbrk(1 << 20), *third = sbrk(0);
    printf("%d\n", first == second && (char *)third - (char *)first == 1 << 20);
    return 0;
}
