/* Threads look values up in a table that the main thread computes; AFTER: each thread computes a part of it. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 8, N = 1 << 18, LOOK_UPS = 120000 };
static double *table, sums[THREADS * 16];
static pthread_barrier_t barrier;

static void compute(long first, long last)
{
    for (long at = first; at < last; at++)
        table[at] = at * 0.5;
}

static void *work(void *number)
{
    long id = (long)number;
    unsigned long state = id * 7919 + 1;
    double sum = 0;
#ifdef AFTER
    compute(id * N / THREADS, (id + 1) * N / THREADS);
#endif
    pthread_barrier_wait(&barrier);
    for (int at = 0; at < LOOK_UPS; at++) {
        state = state * 6364136223846793005ul + 1442695040888963407ul;
        sum += table[state >> 46];
    }
    sums[id * 16] = sum;
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    double sum = 0;
    table = malloc(N * sizeof *table);
    pthread_barrier_init(&barrier, NULL, THREADS);
#ifndef AFTER
    compute(0, N);
#endif
    for (long at = 0; at < THREADS; at++)
        pthread_create(&threads[at], NULL, work, (void *)at);
    for (int at = 0; at < THREADS; at++) {
        pthread_join(threads[at], NULL);
        sum += sums[at * 16];
    }
    printf("%g\n", sum);
    return 0;
}
