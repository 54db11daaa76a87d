/* Sums rows of a matrix in huge pages: each thread initialises the rows that it sums, in blocks that are not a multiple
 * of a huge page, and then the rows of its neighbour. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { THREADS = 8, ROUNDS = 3, HUGE = 2 << 20 };
static const size_t COUNT = (size_t)3 << 20; /* doubles: 24 MiB, 3 MiB for each thread */
static double *numbers, sums[THREADS][8];
static pthread_barrier_t barrier;

static void *work(void *argument)
{
    size_t self = (size_t)argument, share = COUNT / THREADS;
    for (size_t at = self * share; at < (self + 1) * share; at++)
        numbers[at] = (double)(at % 5);
    pthread_barrier_wait(&barrier);
    for (size_t round = 0; round < ROUNDS; round++) {
        size_t block = round == ROUNDS - 1 ? (self + 1) % THREADS : self;
        double sum = 0;
        for (size_t at = block * share; at < (block + 1) * share; at++)
            sum += numbers[at];
        sums[self][0] += sum;
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    numbers = aligned_alloc(HUGE, COUNT * sizeof *numbers);
    if (!numbers || madvise(numbers, COUNT * sizeof *numbers, MADV_HUGEPAGE))
        return 1;
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (size_t at = 0; at < THREADS; at++)
        pthread_create(&threads[at], NULL, work, (void *)at);
    double sum = 0;
    for (size_t at = 0; at < THREADS; at++) {
        pthread_join(threads[at], NULL);
        sum += sums[at][0];
    }
    printf("%.0f\n", sum);
    return 0;
}
