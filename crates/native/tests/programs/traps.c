/* Traps and faults that are none: flags that are stored and loaded under a timer, signals of faults that the program
   sends to itself with the kernel's codes, a processor that refuses to show its clock. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

static volatile int hits;
static sigjmp_buf back;

static void on_alarm(int number) { hits++; }

static void on_fault(int number, siginfo_t *info, void *context)
{
    char line[80];
    int length = snprintf(line, sizeof line, "signal %d code %d value %d\n", number, info->si_code, info->si_value.sival_int);
    write(1, line, length);
}

static void on_denial(int number, siginfo_t *info, void *context)
{
    siglongjmp(back, info->si_code);
}

static unsigned long flags(void)
{
    unsigned long flags;
    __asm__ volatile("pushfq\n pushfq\n popfq\n pop %0" : "=r"(flags));
    return flags;
}

static unsigned long time_stamp(void)
{
    unsigned low, high, processor;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    unsigned long first = (unsigned long)high << 32 | low;
    __asm__ volatile("rdtscp" : "=a"(low), "=d"(high), "=c"(processor));
    return ((unsigned long)high << 32 | low) - first;
}

int main(void)
{
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, 0);
    struct itimerval timer = {{0, 200}, {0, 200}}, none = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &timer, 0);
    int traps = 0;
    for (long i = 0; hits < 1000; i++) traps += flags() >> 8 & 1;
    setitimer(ITIMER_REAL, &none, 0);
    printf("trap flags %d\n", traps);
    fflush(stdout);
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    int faults[] = {SIGSEGV, SIGTRAP, SIGBUS, SIGFPE, SIGILL}, codes[] = {1, 2, SI_KERNEL, SI_QUEUE, SI_USER};
    for (int i = 0; i < 5; i++) sigaction(faults[i], &action, 0);
    for (int i = 0; i < 25; i++) {
        siginfo_t info = {.si_signo = faults[i / 5], .si_code = codes[i % 5]};
        info.si_value.sival_int = i;
        long sent = i & 1 ? syscall(SYS_rt_sigqueueinfo, getpid(), faults[i / 5], &info)
                          : syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), faults[i / 5], &info);
        if (sent) printf("not sent\n");
    }
    for (int i = 0; i < 5; i++) raise(faults[i]);
    action.sa_sigaction = on_denial;
    sigaction(SIGSEGV, &action, 0);
    int can = 0, code;
    printf("get %d", prctl(PR_GET_TSC, &can));
    printf(" %d, wrong %d\n", can, prctl(PR_SET_TSC, 77));
    printf("before %d\n", time_stamp() < 1ul << 40);
    printf("set %d\n", prctl(PR_SET_TSC, PR_TSC_SIGSEGV));
    printf("get %d", prctl(PR_GET_TSC, &can));
    printf(" %d\n", can);
    for (int i = 0; i < 3; i++) {
        if (!(code = sigsetjmp(back, 1))) printf("read %d\n", time_stamp() < 1ul << 40);
        else printf("denied %d\n", code);
    }
    printf("set %d\n", prctl(PR_SET_TSC, PR_TSC_ENABLE));
    printf("after %d\n", time_stamp() < 1ul << 40);
    return 0;
}
