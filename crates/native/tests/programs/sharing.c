/* Processes that share their memory: vfork, posix_spawn, clone with CLONE_VM, alone and with threads. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static volatile int shared;
static char stack[1 << 16];

static int returns(void *by)
{
    shared += *(int *)by;
    return 7;
}

static int ends(void *by)
{
    shared += *(int *)by;
    syscall(SYS_exit_group, 5);
    return 0;
}

static int waits(void *unused)
{
    shared = -1;
    for (;;) pause();
}

static int computes(void *unused)
{
    for (shared = 1;; shared++) continue;
}

static void handler(int number) { write(1, "signal\n", 7); }

static void ignores(int number) {}

static void status(const char *what, pid_t child, int options)
{
    int status = 0;
    pid_t ended = waitpid(child, &status, options);
    printf("%s: %d status %x shared %d\n", what, ended == child, status, shared);
    fflush(stdout);
}

static void *spawner(void *unused)
{
    for (int i = 0; i < 10; i++) {
        volatile int local = 0;
        pid_t child = vfork();
        if (!child) {
            local = 5;
            if (i & 1) _exit(3);
            char *arguments[] = {"true", 0};
            execve("/bin/true", arguments, environ);
            _exit(1);
        }
        int status;
        waitpid(child, &status, 0);
        if (local != 5 || WEXITSTATUS(status) != (i & 1 ? 3 : 0)) printf("local %d %x\n", local, status);
    }
    return 0;
}

int main(void)
{
    int three = 3;
    char *top = stack + sizeof stack;
    signal(SIGUSR1, handler);
    signal(SIGUSR2, ignores);
    status("returns", clone(returns, top, CLONE_VM | SIGCHLD, &three), 0);
    status("ends", clone(ends, top, CLONE_VM | CLONE_FS | CLONE_FILES | SIGCHLD, &three), 0);
    status("handlers", clone(returns, top, CLONE_VM | CLONE_SIGHAND | SIGCHLD, &three), 0);
    status("vfork", clone(ends, top, CLONE_VM | CLONE_VFORK | SIGCHLD, &three), 0);
    status("other signal", clone(returns, top, CLONE_VM | SIGUSR2, &three), __WCLONE);
    status("copy", clone(returns, top, SIGCHLD, &three), 0);
    /* One that is killed, in a call and while it computes. */
    shared = 0;
    pid_t child = clone(waits, top, CLONE_VM | SIGCHLD, &three);
    while (!shared) sched_yield();
    kill(child, SIGTERM);
    status("terminated", child, 0);
    for (int number = SIGTERM; number != 0; number = number == SIGTERM ? SIGKILL : 0) {
        shared = 0;
        child = clone(computes, top, CLONE_VM | SIGCHLD, &three);
        while (!shared) sched_yield();
        kill(child, number);
        waitpid(child, 0, 0);
        printf("killed\n");
        /* New code, and memory that is unmapped. */
        for (int i = 0; i < 100; i++) munmap(mmap(0, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096);
    }
    shared = 0;
    raise(SIGUSR1);
    pid_t spawned;
    char *nothing[] = {"nothing", 0}, *shell[] = {"sh", "-c", "exit 9", 0};
    printf("nothing: %s\n", strerror(posix_spawn(&spawned, "/no/such", 0, 0, nothing, environ)));
    printf("data: %s\n", strerror(posix_spawn(&spawned, "/etc/passwd", 0, 0, nothing, environ)));
    printf("shell: %s\n", strerror(posix_spawn(&spawned, "/bin/sh", 0, 0, shell, environ)));
    status("shell", spawned, 0);
    printf("system %x\n", system("exit 3"));
    /* A child of vfork that is killed, and one that forks. */
    if (!(child = vfork())) {
        shared = 1;
        raise(SIGTERM);
        _exit(1);
    }
    status("raised", child, 0);
    if (!(child = vfork())) {
        pid_t copy = fork();
        if (!copy) {
            shared = 100;
            _exit(4);
        }
        int status;
        waitpid(copy, &status, 0);
        _exit(WEXITSTATUS(status) + 1);
    }
    status("forked", child, 0);
    sigset_t mask, before;
    sigfillset(&mask);
    if (!(child = vfork())) {
        /* Its mask is its own. */
        sigprocmask(SIG_SETMASK, &mask, 0);
        _exit(0);
    }
    status("mask", child, 0);
    sigprocmask(SIG_BLOCK, 0, &before);
    printf("blocked %d\n", sigismember(&before, SIGUSR1));
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(threads + i, 0, spawner, 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
    raise(SIGUSR1);
    printf("end\n");
    return 0;
}
