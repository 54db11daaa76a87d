/* Threads look values up in a table that the main thread computes; AFTER: every fourth thread uses the same of four
   copies, made by the first of them. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 8, N = 1 << 17, LOOK_UPS = 100000, COPIES = 4 };
static double *table, *copy[COPIES], sums[THREADS * 16];
static pthread_barrier_t barrier;

static void *work(void *number)
{
    long id = (long)number;
    unsigned long state = id * 7919 + 1;
    double sum = 0;
    const double *own = table;
#ifdef AFTER
    if (id < COPIES) {
        copy[id] = malloc(N * sizeof *table);
        memcpy(copy[id], table, N * sizeof *table);
    }
    pthread_barrier_wait(&barrier);
    own = copy[id % COPIES];
#endif
    for (int at = 0; at < LOOK_UPS; at++) {
        state = state * 6364136223846793005ul + 1442695040888963407ul;
        sum += own[state >> 47];
    }
    sums[id * 16] = sum;
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    table = malloc(N * sizeof *table);
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (long at = 0; at < N; at++)
        table[at] = at * 0.5;
    for (long at = 0; at < THREADS; at++)
        pthread_create(&threads[at], NULL, work, (void *)at);
    for (int at = 0; at < THREADS; at++)
        pthread_join(threads[at], NULL);
    printf("%g\n", sums[0]);
    return 0;
}
