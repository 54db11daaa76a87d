/* `leaves HOW`: executes an instruction that no recorder can copy, in the middle of what a program does. HOW: `far` a
   return to code of 32 bits, `iret`, `threads` while others compute, wait and get signals, `handler` on a stack of
   its own, `calls` a call of 32-bit programs about signals, `filter` one that a filter forbids, `vfork` in a child
   that shares the memory, `limits` under limits of memory, `enter` the other instruction for system calls, `string` a string that gs addresses,
   `traced` a child that its parent traces, `listener` system calls that another process answers, `dispatch` system calls
   that the program handles by a signal, `steps` a trap after each instruction, which flags on the stack ask for, `stepped`
   which a handler asks for. */
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

static volatile int hits, stop;
static void on_alarm(int number) { hits++; }

static void iret(void)
{
    __asm__ volatile("mov %%rsp, %%rax\n pushq $0x2b\n push %%rax\n pushfq\n pushq $0x33\n lea 1f(%%rip), %%rax\n"
                     "push %%rax\n iretq\n 1:" : : : "rax", "memory", "cc");
}

static int far(void)
{
    unsigned char *low = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    unsigned there = (unsigned)(long)low + 32, back = there + 32, kept = there + 96;
    /* The stack pointer has 32 bits there. */
    memcpy(low, "\x48\x89\x24\x25", 4), memcpy(low + 4, &kept, 4);
    memcpy(low + 8, "\x6a\x23\x68", 3), memcpy(low + 11, &there, 4), memcpy(low + 15, "\x48\xcb", 2);
    memcpy(low + 32, "\xb8\x07\0\0\0\xea", 6), memcpy(low + 38, &back, 4), memcpy(low + 42, "\x33", 2);
    memcpy(low + 64, "\x48\x8b\x24\x25", 4), memcpy(low + 68, &kept, 4), low[72] = 0xc3;
    return ((int (*)(void))low)();
}

static int pipes[2], events;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ready = PTHREAD_COND_INITIALIZER;

static void *computes(void *unused)
{
    long sum = 0, turns = 0;
    while (!stop) {
        for (long i = 0; i < 1000; i++) sum += i * (turns & 1);
        turns++;
    }
    return (void *)(long)(sum == turns / 2 * 499500);
}

static void *reads(void *unused)
{
    char byte = 0;
    long got = read(pipes[0], &byte, 1);
    return (void *)(long)(got == 1 && byte == 'x');
}

static void *polls(void *unused)
{
    struct epoll_event event;
    return (void *)(long)(epoll_wait(events, &event, 1, 20000) == 1);
}

static void *waits(void *unused)
{
    pthread_mutex_lock(&lock);
    while (!stop) pthread_cond_wait(&ready, &lock);
    pthread_mutex_unlock(&lock);
    return (void *)1;
}

static void *sleeps(void *unused)
{
    return (void *)(long)!usleep(300000);
}

static void threads(void)
{
    void *(*all[])(void *) = {computes, computes, reads, polls, waits, sleeps};
    pthread_t threads[6];
    struct epoll_event event = {.events = EPOLLIN};
    int both[2];
    pipe(pipes), pipe(both);
    events = epoll_create1(0);
    epoll_ctl(events, EPOLL_CTL_ADD, both[0], &event);
    struct itimerval timer = {{0, 2000}, {0, 2000}}, none = {{0, 0}, {0, 0}};
    sigset_t alarm;
    sigemptyset(&alarm), sigaddset(&alarm, SIGALRM);
    for (int i = 0; i < 6; i++) {
        if (i == 2) pthread_sigmask(SIG_BLOCK, &alarm, 0);
        pthread_create(&threads[i], 0, all[i], 0);
    }
    pthread_sigmask(SIG_UNBLOCK, &alarm, 0);
    setitimer(ITIMER_REAL, &timer, 0);
    usleep(20000);
    iret();
    int before = hits;
    while (hits < before + 3) continue;
    setitimer(ITIMER_REAL, &none, 0);
    write(pipes[1], "x", 1), write(both[1], "y", 1);
    pthread_mutex_lock(&lock);
    stop = 1;
    pthread_cond_broadcast(&ready);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < 6; i++) {
        void *result;
        pthread_join(threads[i], &result);
        printf("%ld", (long)result);
    }
    printf("\n");
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    char here;
    stack_t stack;
    iret();
    sigaltstack(0, &stack);
    printf("fault at %p, on its stack %d\n", info->si_addr, &here > (char *)stack.ss_sp && stack.ss_flags == SS_ONSTACK);
    mmap((void *)0x10000, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

/* A child asks for its parent, who answers instead of the kernel. */
static void listener(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {4, code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    int answers = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    pid_t child = fork();
    if (!child) _exit(syscall(SYS_getppid) == 4242 ? 9 : 8);
    struct seccomp_notif asked = {0};
    ioctl(answers, SECCOMP_IOCTL_NOTIF_RECV, &asked);
    struct seccomp_notif_resp answer = {.id = asked.id, .val = 4242};
    ioctl(answers, SECCOMP_IOCTL_NOTIF_SEND, &answer);
    int status = 0;
    waitpid(child, &status, 0);
    printf("asked by the child %d, status %x\n", (pid_t)asked.pid == child, status);
}

static volatile char handles;

static void on_call(int number, siginfo_t *info, void *context)
{
    handles = 0;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = 777;
}

static void dispatch(void)
{
    struct sigaction action = {.sa_sigaction = on_call, .sa_flags = SA_SIGINFO};
    sigaction(SIGSYS, &action, 0);
    int set = prctl(59, 1, 0, 0, &handles);
    handles = set == 0;
    long result = syscall(SYS_getpid);
    printf("set %d, result %ld\n", set, result);
}

static long call_32(long number, long b, long c, long d, long s)
{
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "0"(number), "b"(b), "c"(c), "d"(d), "S"(s)
                     : "memory", "r8", "r9", "r10", "r11");
    return result;
}

static volatile unsigned long stops[16];
static volatile int count_of_stops;

static void on_step(int number, siginfo_t *info, void *context)
{
    ucontext_t *at = context;
    if (number == SIGUSR2) at->uc_mcontext.gregs[REG_EFL] |= 0x100;
    else if (count_of_stops < 16) stops[count_of_stops++] = at->uc_mcontext.gregs[REG_RIP];
    if (count_of_stops == 7) at->uc_mcontext.gregs[REG_EFL] &= ~0x100;
}

/* Distances between the instructions at which it stopped. */
static void steps(int by_handler)
{
    sigset_t trap;
    sigemptyset(&trap), sigaddset(&trap, SIGTRAP);
    struct sigaction action = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO};
    sigaction(SIGTRAP, &action, 0), sigaction(SIGUSR2, &action, 0);
    sigtimedwait(&trap, 0, &(struct timespec){0});
    sigprocmask(SIG_UNBLOCK, &trap, 0);
    long sum = 1;
    if (by_handler) {
        long self = getpid();
        __asm__ volatile("syscall; nop; add %0, %0; imul $3, %0, %0; nop; mov %0, %%rcx; nop; nop; nop; nop; nop"
                         : "+r"(sum) : "a"((long)SYS_kill), "D"(self), "S"((long)SIGUSR2) : "rcx", "r11", "memory", "cc");
    } else {
        __asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq; nop; add %0, %0; imul $3, %0, %0; pushfq; "
                         "andq $~0x100, (%%rsp); popfq; nop" : "+r"(sum) : : "cc", "memory");
    }
    printf("sum %ld, stops %d:", sum, count_of_stops);
    /* After a system call the processor may stop once more. */
    for (int i = 1 + by_handler; i < count_of_stops; i++) printf(" %ld", (long)(stops[i] - stops[i - 1]));
    printf("\n");
    sigprocmask(SIG_BLOCK, &trap, 0);
    raise(SIGTRAP);
}

int main(int count, char **arguments)
{
    const char *how = count > 1 ? arguments[1] : "";
    setvbuf(stdout, 0, _IOLBF, 0);
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, 0);
    sigset_t mask;
    sigemptyset(&mask), sigaddset(&mask, SIGUSR1), sigaddset(&mask, SIGTRAP);
    sigprocmask(SIG_BLOCK, &mask, 0);
    raise(SIGTRAP), raise(SIGUSR1);
    volatile double kept[4];
    register double value __asm__("xmm9") = 1.25;
    __asm__ volatile("" : "+x"(value));
    if (!strcmp(how, "far")) printf("far %d\n", far());
    if (!strcmp(how, "iret")) iret();
    kept[0] = value;
    if (!strcmp(how, "threads")) threads();
    if (!strcmp(how, "handler")) {
        stack_t stack = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
        sigaltstack(&stack, 0);
        struct sigaction fault = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
        sigaction(SIGSEGV, &fault, 0);
        printf("read %d\n", *(volatile char *)0x10008);
    }
    if (!strcmp(how, "calls")) {
        unsigned *old = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
        printf("%ld", call_32(174, SIGALRM, 0, (long)old, 8));
        printf(" %d\n", old[0] == (unsigned)(long)on_alarm);
    }
    if (!strcmp(how, "filter")) {
        struct sock_filter code[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 4),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0xc000003e, 1, 0),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 77),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = {4, code};
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
        printf("%ld\n", call_32(20, 0, 0, 0, 0));
    }
    if (!strcmp(how, "limits")) {
        struct rlimit limit = {1ul << 30, RLIM_INFINITY};
        setrlimit(RLIMIT_AS, &limit);
        iret();
        getrlimit(RLIMIT_AS, &limit);
        printf("limit %lx, map %d\n", limit.rlim_cur, mmap(0, 1ul << 31, 0, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
    }
    if (!strcmp(how, "vfork")) {
        pid_t child = vfork();
        if (!child) {
            iret();
            hits = 3;
            _exit(4);
        }
    }
    if (!strcmp(how, "traced")) {
        pid_t child = fork();
        if (!child) {
            ptrace(PTRACE_TRACEME, 0, 0, 0);
            raise(SIGSTOP);
            execl("/bin/true", "true", NULL);
        }
        int status, stops = 0;
        while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
            long next = ptrace(PTRACE_PEEKUSER, child, 16 * 8, 0);
            printf("stop %d %d by %d\n", ++stops, next != 0, WSTOPSIG(status));
            ptrace(PTRACE_CONT, child, 0, 0);
        }
        printf("ended %d, attach %ld\n", status, ptrace(PTRACE_ATTACH, child, 0, 0));
    }
    if (!strcmp(how, "steps")) steps(0);
    if (!strcmp(how, "stepped")) steps(1);
    if (!strcmp(how, "listener")) listener();
    if (!strcmp(how, "dispatch")) dispatch();
    if (!strcmp(how, "string")) {
        char text[8] = "abcdefg", *at = 0, byte;
        syscall(SYS_arch_prctl, ARCH_SET_GS, text + 2);
        __asm__ volatile("lodsb %%gs:(%%rsi)" : "=a"(byte), "+S"(at));
        printf("%c %d\n", byte, (int)(long)at);
    }
    if (!strcmp(how, "enter")) {
        pid_t child = fork();
        if (!child) {
            __asm__ volatile("mov $20, %%eax\n sysenter" : : : "memory", "rax", "rbp");
            _exit(6);
        }
        int ended;
        waitpid(child, &ended, 0);
        printf("ended %x\n", ended);
    }
    int status = 0;
    if (!fork()) exit(hits > 0 ? 5 : 4);
    while (wait(&status) > 0) printf("status %x\n", status);
    sigset_t pending, now;
    sigpending(&pending), sigprocmask(0, 0, &now);
    printf("%g, pending %d %d, blocked %d %d\n", kept[0], sigismember(&pending, SIGTRAP), sigismember(&pending, SIGUSR1),
           sigismember(&now, SIGTRAP), sigismember(&now, SIGALRM));
    return hits > 100 ? 0 : 7;
}
