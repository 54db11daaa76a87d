// What a program can find out of itself.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
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
