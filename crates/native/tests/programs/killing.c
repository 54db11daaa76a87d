/* A process that shares its memory executes new code again and again until it is killed, by each call that can. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FUNCTIONS 60000

static volatile int started;
static char stack[1 << 17];
static char *code;

static int computes(void *unused)
{
    volatile int sum = 0;
    started = 1;
    for (unsigned i = 0;; i++) sum += ((int (*)(void))(code + i % FUNCTIONS * 16))();
}

static void kills(int how, pid_t child)
{
    siginfo_t info = {.si_signo = SIGKILL, .si_code = SI_QUEUE};
    switch (how) {
    case 0: kill(child, SIGKILL); break;
    case 1: syscall(SYS_tkill, child, SIGKILL); break;
    case 2: syscall(SYS_tgkill, child, child, SIGKILL); break;
    case 3: syscall(SYS_rt_sigqueueinfo, child, SIGKILL, &info); break;
    case 4: setpgid(child, child); kill(-child, SIGKILL); break;
    case 5: {
        int descriptor = syscall(SYS_pidfd_open, child, 0);
        syscall(SYS_pidfd_send_signal, descriptor, SIGKILL, 0, 0);
        close(descriptor);
    }
    }
}

int main(void)
{
    code = mmap(0, FUNCTIONS * 16, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < FUNCTIONS; i++) memcpy(code + i * 16, "\xb8\1\0\0\0\xc3", 6); /* mov eax, 1; ret */
    for (int i = 0; i < 60; i++) {
        started = 0;
        pid_t child = clone(computes, stack + sizeof stack, CLONE_VM | SIGCHLD, 0);
        while (!started) sched_yield();
        struct timespec moment = {0, rand() % 400000};
        nanosleep(&moment, 0);
        kills(i % 6, child);
        int status = 0;
        waitpid(child, &status, 0);
        if (status != SIGKILL) printf("status %x\n", status);
        /* Nothing waits for what the child was in the middle of. */
        munmap(mmap(0, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096);
    }
    puts("end");
    /* Itself, and then the other. */
    fflush(stdout);
    started = 0;
    pid_t child = clone(computes, stack + sizeof stack, CLONE_VM | SIGCHLD, 0);
    while (!started) sched_yield();
    pid_t parent = getpid();
    if (!fork()) {
        while (getppid() == parent) usleep(1000);
        kill(child, SIGTERM);
        _exit(0);
    }
    kill(parent, SIGKILL);
    return 0;
}
