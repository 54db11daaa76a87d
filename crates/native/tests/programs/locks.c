// Locks all memory, present and future, at once or as it is used; looks what is locked, and what a child has of it.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef PR_SET_MEMORY_MERGE
#define PR_SET_MEMORY_MERGE 67
#define PR_GET_MEMORY_MERGE 68
#endif

enum { MIB = 1 << 20, SIZE = 16 * MIB };

static long status(const char *what) {
    char line[256];
    long found = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, file))
        if (!strncmp(line, what, strlen(what)))
            found = atol(line + strlen(what));
    fclose(file);
    return found;
}

static int resident(char *at) {
    unsigned char pages[SIZE / 4096];
    int sum = 0;
    mincore(at, SIZE, pages);
    for (int n = 0; n < SIZE / 4096; ++n)
        sum += pages[n] & 1;
    return sum;
}

static char *map(void) {
    char *at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

static const char *said(long result) { return result < 0 ? strerror(errno) : "ok"; }

static void *work(void *at) {
    for (int n = 0; n < SIZE; n += 4096)
        ((char *)at)[n] += 1;
    return at;
}

// What is locked, in multiples of a mapping that the program makes: the C library's own mappings are small.
static void show(const char *when) {
    printf("%s: %ld of ours locked\n", when, status("VmLck:") / (SIZE >> 10));
    fflush(stdout);
}

int main(void) {
    // The stacks of threads would be locked, too.
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 << 10);
    printf("%s %s %s\n", said(mlockall(0)), said(mlockall(MCL_ONFAULT)), said(mlockall(64)));
    char *first = map();
    printf("current: %s\n", said(mlockall(MCL_CURRENT)));
    show("current");
    printf("resident %d, then %d\n", resident(first), resident(map()));
    printf("future: %s\n", said(mlockall(MCL_FUTURE)));
    char *second = map();
    printf("resident %d\n", resident(second));
    show("future");
    char *heap = sbrk(SIZE);
    memset(heap, 1, 100);
    show("heap");
    pthread_t thread;
    pthread_create(&thread, &attributes, work, second);
    pthread_join(thread, NULL);
    fflush(stdout);
    if (fork() == 0) {
        show("child");
        printf("resident %d\n", resident(map()));
        fflush(stdout);
        _exit(0);
    }
    wait(NULL);
    munmap(second, SIZE);
    show("unmapped");
    printf("none: %s\n", said(munlockall()));
    show("none");
    printf("resident %d\n", resident(map()));
    printf("on fault: %s\n", said(mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT)));
    char *third = map();
    printf("resident %d\n", resident(third));
    show("on fault");
    munlockall();
    // Without the right to lock more than the limit.
    struct rlimit limit = {1 * MIB, 1 * MIB};
    setrlimit(RLIMIT_MEMLOCK, &limit);
    if (getuid() == 0 && setresuid(65534, 65534, 65534))
        return 1;
    printf("too much: %s\n", said(mlockall(MCL_CURRENT)));
    printf("future: %s\n", said(mlockall(MCL_FUTURE)));
    printf("%s\n", map() ? "mapped" : strerror(errno));
    printf("on fault: %s\n", said(mlockall(MCL_FUTURE | MCL_ONFAULT)));
    printf("%s\n", map() ? "mapped" : strerror(errno));
    munlockall();
    printf("%s\n", map() ? "mapped" : strerror(errno));
    printf("merged: %d %s ", prctl(PR_GET_MEMORY_MERGE, 0, 0, 0, 0), said(prctl(PR_SET_MEMORY_MERGE, 1, 0, 0, 0)));
    printf("%d ", prctl(PR_GET_MEMORY_MERGE, 0, 0, 0, 0));
    prctl(PR_SET_MEMORY_MERGE, 0, 0, 0, 0);
    printf("%d\n", prctl(PR_GET_MEMORY_MERGE, 0, 0, 0, 0));
    // The engine's memory is not.
    printf("less than 400 MB: %d\n", status("VmHWM:") < 400 << 10);
}
