// A timer signal at 1 kHz while the program computes, makes system calls, and allocates; the result must not change.
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t ticks;
static volatile double kept;

static void tick(int number) {
    (void)number;
    // The extended state is the handler's own.
    kept += sqrt((double)++ticks);
}

int main(void) {
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval every = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &every, NULL);
    unsigned long hash = 1;
    double sum = 0;
    int pipes[2];
    if (pipe(pipes))
        return 1;
    while (ticks < 300) {
        for (int n = 0; n < 1000; ++n) {
            hash = hash * 6364136223846793005UL + 1;
            sum += (double)(hash >> 40) * 0.5;
            sum -= (double)(hash >> 40) * 0.5;
        }
        char *copy = malloc(hash % 1000 + 1);
        memset(copy, (int)hash, hash % 1000 + 1);
        if (write(pipes[1], copy, 1) != 1 || read(pipes[0], copy, 1) != 1)
            return 2;
        free(copy);
    }
    // A call that a signal ends, and one that it does not.
    struct timespec second = {1, 0};
    int result = nanosleep(&second, NULL);
    printf("%d %d\n", result, result < 0 && errno == EINTR);
    sigset_t set, old;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    sigprocmask(SIG_BLOCK, &set, &old);
    int before = ticks;
    for (volatile int n = 0; n < 3000000; ++n)
        ;
    printf("%d\n", ticks == before);
    sigsuspend(&old);
    printf("%d\n", ticks == before + 1);
    memset(&every, 0, sizeof every);
    setitimer(ITIMER_REAL, &every, NULL);
    sigprocmask(SIG_SETMASK, &old, NULL);
    printf("%g\n", sum);
    raise(SIGTERM);
}
