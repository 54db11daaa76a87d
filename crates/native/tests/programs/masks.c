/* Signals that are blocked, waited for and let through: `sigsuspend`, `ppoll` and so on, signals of faults that are
   pending, handlers that are called once, and handlers without room on their stack. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static void say(const char *what, int number, const sigset_t *former)
{
    sigset_t now;
    char line[160];
    sigprocmask(SIG_BLOCK, 0, &now);
    int length = sprintf(line, "%s %d, now", what, number);
    for (int n = 1; n < 32; n++)
        if (sigismember(&now, n)) length += sprintf(line + length, " %d", n);
    length += sprintf(line + length, ", former");
    for (int n = 1; n < 32; n++)
        if (sigismember(former, n)) length += sprintf(line + length, " %d", n);
    line[length++] = '\n';
    write(1, line, length);
}

static void handler(int number, siginfo_t *info, void *context)
{
    say("handler", number, &((ucontext_t *)context)->uc_sigmask);
}

static void waits(int how, const sigset_t *mask)
{
    struct timespec time = {5, 0};
    struct epoll_event event;
    int result = 0, poller = epoll_create(1);
    errno = 0;
    if (how == 0) result = sigsuspend(mask);
    if (how == 1) result = ppoll(0, 0, &time, mask);
    if (how == 2) result = pselect(0, 0, 0, 0, &time, mask);
    if (how == 3) result = epoll_pwait(poller, &event, 1, 5000, mask);
    printf("%d: %d %s", how, result, strerror(errno));
    sigset_t now;
    sigprocmask(SIG_BLOCK, 0, &now);
    say("", 0, &now);
    fflush(stdout);
    close(poller);
}

static void let_through(void)
{
    sigset_t blocked, mask;
    sigemptyset(&blocked);
    int numbers[] = {SIGUSR1, SIGUSR2, SIGSEGV, SIGTRAP, SIGHUP};
    for (int i = 0; i < 5; i++) sigaddset(&blocked, numbers[i]);
    sigprocmask(SIG_SETMASK, &blocked, 0);
    for (int how = 0; how < 4; how++) {
        for (int i = 0; i < 5; i++) raise(numbers[i]);
        sigemptyset(&mask);
        sigaddset(&mask, SIGTERM);
        sigaddset(&mask, SIGHUP);
        waits(how, &mask);
        /* One of the five is still pending; then none. */
        sigfillset(&mask);
        sigdelset(&mask, SIGHUP);
        waits(how, &mask);
        /* Nothing to wait for: what is ready is reported. */
        int pipes[2];
        pipe(pipes);
        write(pipes[1], "x", 1);
        struct pollfd one = {pipes[0], POLLIN};
        sigemptyset(&mask);
        printf("ready %d\n", ppoll(&one, 1, 0, &mask));
        close(pipes[0]);
        close(pipes[1]);
    }
}

static void shows_pending(void)
{
    sigset_t blocked, pending;
    struct timespec time = {5, 0}, none = {0, 0};
    siginfo_t info;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGSEGV);
    sigaddset(&blocked, SIGTRAP);
    sigprocmask(SIG_SETMASK, &blocked, 0);
    kill(getpid(), SIGSEGV);
    sigpending(&pending);
    printf("pending %d %d\n", sigismember(&pending, SIGSEGV), sigismember(&pending, SIGTRAP));
    int number = sigtimedwait(&blocked, &info, &time);
    printf("waited %d code %d own %d\n", number, info.si_code, info.si_pid == getpid());
    printf("waited %d\n", sigtimedwait(&blocked, &info, &none));
    raise(SIGTRAP);
    int descriptor = signalfd(-1, &blocked, SFD_NONBLOCK);
    struct pollfd one = {descriptor, POLLIN};
    struct signalfd_siginfo read_info;
    int ready = poll(&one, 1, 5000), length = read(descriptor, &read_info, sizeof read_info);
    printf("poll %d read %d signal %d\n", ready, length, read_info.ssi_signo);
    printf("read %zd\n", read(descriptor, &read_info, sizeof read_info));
    /* A fault that is really one, while its signal is pending. */
    raise(SIGSEGV);
    sigpending(&pending);
    printf("pending %d\n", sigismember(&pending, SIGSEGV));
    fflush(stdout);
    sigemptyset(&blocked);
    sigprocmask(SIG_SETMASK, &blocked, 0);
    printf("delivered\n");
    fflush(stdout);
}

static char small[4096], alternate[1 << 16];
static void deep(int number)
{
    char line[64];
    write(1, line, sprintf(line, "deep %d\n", number));
    _exit(number);
}

static void on_stack(int how)
{
    stack_t stack = {.ss_sp = small, .ss_size = sizeof small};
    struct sigaction action = {.sa_handler = deep, .sa_flags = SA_ONSTACK};
    if (how & 1) stack.ss_sp = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (how & 2) action.sa_flags = 0;
    if (how & 4) stack.ss_size = 2048;
    sigaltstack(&stack, 0);
    sigaction(SIGUSR1, &action, 0);
    action.sa_flags = 0;
    if (how & 8) sigaction(SIGSEGV, &action, 0);
    raise(SIGUSR1);
    exit(0);
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO}, now;
    for (int i = 1; i < 32; i++)
        if (i != SIGKILL && i != SIGSTOP && i != SIGCHLD) sigaction(i, &action, 0);
    let_through();
    shows_pending();
    for (int i = 0; i < 2; i++) {
        int number = i ? SIGSEGV : SIGUSR1;
        action.sa_flags = SA_SIGINFO | SA_RESETHAND | SA_RESTART;
        sigaddset(&action.sa_mask, SIGHUP);
        sigaction(number, &action, 0);
        raise(number);
        sigaction(number, 0, &now);
        printf("once: %d %x %d\n", now.sa_handler == SIG_DFL, now.sa_flags, sigismember(&now.sa_mask, SIGHUP));
    }
    for (int how = 0; how < 16; how++) {
        fflush(stdout);
        pid_t child = fork();
        if (!child) {
            signal(SIGSEGV, SIG_DFL);
            on_stack(how);
        }
        int status;
        waitpid(child, &status, 0);
        printf("stack %d: %x\n", how, status & 0xff7f);
    }
    for (int flags = 0; flags < 6; flags++) {
        stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate, .ss_flags = flags};
        errno = 0;
        printf("flags %d: %d", flags, sigaltstack(&stack, 0));
        printf(" %d\n", errno);
    }
    struct { unsigned long flags, pidfd, child, parent, signal, stack, size, rest[4]; } request = {.signal = SIGCHLD};
    request.size = 4096;
    printf("size without stack: %ld\n", syscall(SYS_clone3, &request, 64) == -1 ? (long)errno : 0);
    request.stack = (unsigned long)alternate;
    request.size = 0;
    printf("stack without size: %ld\n", syscall(SYS_clone3, &request, 64) == -1 ? (long)errno : 0);
    request.stack = 0;
    fflush(stdout);
    long child = syscall(SYS_clone3, &request, 64);
    if (!child) _exit(9);
    int status;
    waitpid(child, &status, 0);
    printf("no stack: %x\n", status);
    return 0;
}
