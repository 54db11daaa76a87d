/* Filters of system calls: results, signals, inheritance, and what a filter may be. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int deny(int number, unsigned result, int flags)
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, result),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {4, program};
    if (flags < 0) return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &filter);
}

static void tried(const char *what)
{
    int group = syscall(SYS_getpgid, 0), error = errno;
    printf("%s: %s\n", what, group < 0 ? strerror(error) : "group");
}

static void on_trap(int signal, siginfo_t *info, void *unused)
{
    printf("signal %d code %d value %d call %d\n", signal, info->si_code, info->si_errno, info->si_syscall);
}

static pthread_barrier_t barrier;

static void *other(void *unused)
{
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    tried("other thread");
    return unused;
}

static void report(const char *what)
{
    int status;
    wait(&status);
    printf("%s: %x\n", what, status);
}

int main(int count, char **arguments)
{
    setvbuf(stdout, 0, _IOLBF, 0);
    if (count > 1) {
        tried("executed");
        return 4;
    }
    printf("mode %d\n", prctl(PR_GET_SECCOMP));
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    struct sock_fprog none = {0, 0};
    int result = prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &none);
    printf("empty: %d %s\n", result, strerror(errno));
    result = prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, 8);
    printf("bad address: %d %s\n", result, strerror(errno));
    tried("before");
    if (!fork()) {
        if (!deny(SYS_getpgid, SECCOMP_RET_ERRNO | EXDEV, -1)) printf("mode %d\n", prctl(PR_GET_SECCOMP));
        tried("filtered");
        if (!fork()) {
            tried("child");
            /* The more severe one counts, also if it is older. */
            deny(SYS_getpgid, SECCOMP_RET_ALLOW, 0);
            tried("twice");
            execl("/proc/self/exe", "filters", "again", (char *)0);
        }
        report("executed");
        return 0;
    }
    report("filtered");
    if (!fork()) {
        pthread_t thread;
        pthread_barrier_init(&barrier, 0, 2);
        pthread_create(&thread, 0, other, 0);
        pthread_barrier_wait(&barrier);
        printf("all threads: %d\n", deny(SYS_getpgid, SECCOMP_RET_ERRNO | EXDEV, SECCOMP_FILTER_FLAG_TSYNC));
        pthread_barrier_wait(&barrier);
        pthread_join(thread, 0);
        return 0;
    }
    report("threads");
    if (!fork()) {
        struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
        sigaction(SIGSYS, &action, 0);
        deny(SYS_getpgid, SECCOMP_RET_TRAP | 7, 0);
        syscall(SYS_getpgid, 0);
        return 0;
    }
    report("trap");
    if (!fork()) {
        deny(SYS_getpgid, SECCOMP_RET_KILL_PROCESS, 0);
        syscall(SYS_getpgid, 0);
        return 0;
    }
    report("killed");
    if (!fork()) {
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
        syscall(SYS_getpgid, 0);
        return 0;
    }
    report("strict");
    return 0;
}
