/* Children that begin without handlers of signals (CLONE_CLEAR_SIGHAND): a copy, one that its parent waits for as after
   vfork, and one that runs at the same time. Each looks at its actions and writes code. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CLEAR 0x100000000ull

static unsigned char *code;
static char stack[1 << 16] __attribute__((aligned(16)));

static void handler(int number) {}

static int value(int number)
{
    memcpy(code, "\xb8\0\0\0\0\xc3", 6);
    code[1] = number;
    return ((int (*)(void))code)();
}

static long child(void *what)
{
    struct sigaction one, two, three;
    sigaction(SIGUSR1, 0, &one), sigaction(SIGUSR2, 0, &two), sigaction(SIGSEGV, 0, &three);
    int seen = (one.sa_handler == SIG_DFL) | (two.sa_handler == SIG_IGN) << 1 | (three.sa_handler == SIG_DFL) << 2;
    for (int i = 0; i < 20; i++) seen |= (value(i) != i) << 3;
    raise(SIGUSR2);
    if (what) raise(*(int *)what);
    return seen;
}

/* Calls `child` in what clone3 creates, and ends it with the result. */
static long created(struct clone_args *arguments, void *what)
{
    long result;
    register long (*called)(void *) __asm__("r12") = child;
    register void *with __asm__("r13") = what;
    __asm__ volatile("syscall\n test %%rax, %%rax\n jnz 1f\n mov %%r13, %%rdi\n call *%%r12\n mov %%rax, %%rdi\n"
                     "mov $231, %%eax\n syscall\n 1:"
                     : "=a"(result)
                     : "0"(SYS_clone3), "D"(arguments), "S"(sizeof *arguments), "r"(called), "r"(with)
                     : "rcx", "r11", "memory", "cc");
    return result;
}

int main(void)
{
    struct { const char *name; unsigned long long flags; } kinds[] = {
        {"copy", 0}, {"waited for", CLONE_VM | CLONE_VFORK}, {"at the same time", CLONE_VM},
    };
    int signals[] = {0, SIGUSR1, SIGSEGV};
    code = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    signal(SIGUSR1, handler), signal(SIGSEGV, handler), signal(SIGUSR2, SIG_IGN);
    for (int kind = 0; kind < 3; kind++)
        for (int i = 0; i < 3; i++) {
            struct clone_args arguments = {.flags = kinds[kind].flags | CLEAR, .exit_signal = SIGCHLD};
            if (kind > 0) arguments.stack = (long)stack, arguments.stack_size = sizeof stack;
            value(99);
            long pid = created(&arguments, i ? &signals[i] : 0);
            int status = 0, ended = waitpid(pid, &status, 0) == pid;
            struct sigaction one;
            sigaction(SIGUSR1, 0, &one);
            printf("%s %d: %d status %x, handler %d, code %d\n", kinds[kind].name, signals[i], ended, status,
                   one.sa_handler == handler, value(7));
        }
    struct clone_args both = {.flags = CLONE_VM | CLONE_SIGHAND | CLEAR, .exit_signal = SIGCHLD,
                              .stack = (long)stack, .stack_size = sizeof stack};
    printf("both %ld\n", created(&both, 0));
    raise(SIGUSR1);
    printf("handled\n");
    return 0;
}
