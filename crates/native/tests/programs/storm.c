/* Processes that end while signals arrive: `storm HOW MICROSECONDS ROUNDS` creates ROUNDS processes, each of which is
   interrupted by a timer, and says how they ended. HOW: `timer` nothing else, `children` by SIGCHLD, `threads` by
   another thread, `process` by another process, `pthread` the first thread ends before others, `fork` threads fork
   while the process ends, `killed` by its own fatal signal. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int hits;
static pthread_t first;
static void handler(int number) { hits++; }

static void *sender(void *unused)
{
    for (;;) pthread_kill(first, SIGUSR1);
}

static void *waiter(void *unused)
{
    pause();
    usleep(500);
    exit(7);
}

static void *forker(void *unused)
{
    for (;;) {
        pid_t child = fork();
        if (!child) {
            /* The copy must end although its parent was ending. */
            usleep(200);
            _exit(0);
        }
        waitpid(child, 0, 0);
    }
}

static int one(const char *how, int microseconds, int round)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = round & 1 ? SA_RESTART : 0};
    sigaction(SIGALRM, &action, 0);
    sigaction(SIGUSR1, &action, 0);
    sigaction(SIGCHLD, &action, 0);
    struct itimerval timer = {{0, microseconds}, {0, microseconds}};
    pthread_t thread;
    first = pthread_self();
    setitimer(ITIMER_REAL, &timer, 0);
    if (!strcmp(how, "children"))
        for (int i = 0; i < 3; i++)
            if (!fork()) _exit(i);
    if (!strcmp(how, "threads")) pthread_create(&thread, 0, sender, 0);
    if (!strcmp(how, "fork")) pthread_create(&thread, 0, forker, 0);
    if (!strcmp(how, "process")) {
        pid_t parent = getpid();
        if (!fork()) {
            while (getppid() == parent) kill(parent, SIGUSR1);
            _exit(0);
        }
    }
    if (!strcmp(how, "pthread")) {
        pthread_create(&thread, 0, waiter, 0);
        pthread_exit(0);
    }
    while (hits < 3) continue;
    if (!strcmp(how, "killed")) {
        signal(SIGTERM, SIG_DFL);
        raise(SIGTERM);
    }
    return 7;
}

int main(int count, char **arguments)
{
    if (count < 4) return 2;
    int rounds = atoi(arguments[3]), ended[2] = {0, 0};
    for (int round = 0; round < rounds; round++) {
        pid_t child = fork();
        if (!child) exit(one(arguments[1], atoi(arguments[2]), round));
        int status;
        if (waitpid(child, &status, 0) != child) return 3;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 7) ended[0]++;
        else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) ended[1]++;
        else printf("status %x\n", status);
    }
    printf("%s: %d ended, %d killed\n", arguments[1], ended[0], ended[1]);
    return 0;
}
