/* Each thread pushes to and pops from a stack of its own, whose tops lie side by side; AFTER: a line for each. */
#include <pthread.h>
#include <stdio.h>

enum { THREADS = 8, TIMES = 30000, DEPTH = 64 };
#ifdef AFTER
struct top { _Alignas(64) volatile int at; };
#else
struct top { volatile int at; };
#endif
static struct top tops[THREADS] __attribute__((aligned(64)));
static int stacks[THREADS][DEPTH] __attribute__((aligned(64)));

static void *work(void *number)
{
    long id = (long)number;
    for (int at = 0; at < TIMES; at++) {
        if (at & 1 && tops[id].at > 0) {
            tops[id].at--;
        } else if (tops[id].at < DEPTH - 1) {
            stacks[id][tops[id].at] = at;
            tops[id].at++;
        }
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    for (long at = 0; at < THREADS; at++)
        pthread_create(&threads[at], NULL, work, (void *)at);
    for (int at = 0; at < THREADS; at++)
        pthread_join(threads[at], NULL);
    printf("%d\n", tops[0].at);
    return 0;
}
