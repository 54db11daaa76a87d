/* A program limits itself: what it reads, what it gets, and what the programs that it executes have. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void *work(void *unused)
{
    static volatile long cells[10000];
    for (int i = 0; i < 1000000; i++) cells[i % 10000] += i;
    return unused;
}

static void limit(int resource, rlim_t soft, rlim_t hard)
{
    struct rlimit limits = {soft, hard};
    int result = setrlimit(resource, &limits);
    printf("set %s;", result ? strerror(errno) : "it");
    getrlimit(resource, &limits);
    printf(" %lx %lx\n", (long)limits.rlim_cur, (long)limits.rlim_max);
}

static void memory(void)
{
    pthread_t thread;
    void *some = mmap(0, 100 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *more = mmap(0, 1200l << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    void *read = mmap(0, 1200l << 20, 1, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    printf("%d %d %d ", some != MAP_FAILED, more != MAP_FAILED, read != MAP_FAILED);
    int created = pthread_create(&thread, 0, work, 0);
    if (!created) pthread_join(thread, 0);
    void *up = sbrk(1200l << 20);
    printf("thread %d break %d\n", created, up != (void *)-1);
}

int main(int count, char **arguments)
{
    setvbuf(stdout, 0, _IOLBF, 0);
    if (count > 1 && !strcmp(arguments[1], "stack")) {
        /* Half of it. */
        volatile char used[32 << 10];
        memset((char *)used, 1, sizeof used);
        return used[100] + 10;
    }
    if (count > 1) {
        struct rlimit limits;
        int all[] = {RLIMIT_AS, RLIMIT_DATA, RLIMIT_FSIZE, RLIMIT_NOFILE, RLIMIT_CORE};
        for (int i = 0; i < 5; i++) {
            getrlimit(all[i], &limits);
            printf("%lx ", (long)limits.rlim_cur);
        }
        memory();
        work(0);
        return 3;
    }
    int resources[] = {RLIMIT_AS, RLIMIT_DATA};
    for (int i = 0; i < 2; i++) {
        if (!fork()) {
            limit(resources[i], 1 << 30, 2l << 30);
            limit(resources[i], 3l << 30, 2l << 30);
            limit(resources[i], 1 << 30, 1 << 30);
            memory();
            if (!fork()) memory(), _exit(0);
            wait(0);
            fflush(stdout);
            execl("/proc/self/exe", "limits", "again", (char *)0);
        }
        int status;
        wait(&status);
        printf("status %x\n", status);
    }
    if (!fork()) {
        limit(RLIMIT_NOFILE, 10, 10);
        int opened = 0, last = 0, file;
        while ((file = open("/dev/null", O_RDONLY)) >= 0) opened++, last = file;
        printf("%d more, %d the last, %s\n", opened, last, strerror(errno));
        work(0);
        if (!fork()) _exit(0);
        wait(0);
        for (file = 3; file < 10; file++) close(file);
        execl("/proc/self/exe", "limits", "again", (char *)0);
    }
    wait(0);
    if (!fork()) {
        limit(RLIMIT_FSIZE, 4096, 4096);
        limit(RLIMIT_CORE, 0, 0);
        char path[64], bytes[5000] = {0};
        sprintf(path, "./limits.%d", getpid());
        int file = open(path, O_WRONLY | O_CREAT, 0600);
        unlink(path);
        signal(SIGXFSZ, SIG_IGN);
        int first = write(file, bytes, 5000), second = write(file, bytes, 1);
        printf("written %d %d %s\n", first, second, strerror(errno));
        work(0);
        signal(SIGXFSZ, SIG_DFL);
        if (!fork()) {
            work(0);
            execl("/proc/self/exe", "limits", "again", (char *)0);
        }
        wait(0);
        if (write(file, bytes, 1)) return 1;
        return 0;
    }
    int status;
    wait(&status);
    printf("signal %d\n", WTERMSIG(status));
    fflush(stdout);
    if (!fork()) {
        limit(RLIMIT_STACK, 64 << 10, 64 << 10);
        char *small[] = {"limits", "stack", 0}, *empty[] = {0};
        execve("/proc/self/exe", small, empty);
    }
    wait(&status);
    printf("small stack %x\n", status);
    return 0;
}
