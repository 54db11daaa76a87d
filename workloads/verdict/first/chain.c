/* A pipeline of POSIX threads: stage s reads the block that stage s-1 wrote and writes its own, all stages
 * at once on different blocks. Stages are created in an order that has nothing to do with the pipeline's.
 *
 * Communication: a chain, stage s to s+1. Threads in order of creation tear it apart.
 * Usage: chain [STAGES=8] [CELLS=32768] [ROUNDS=30] */
#include <pthread.h>

#include "../../workload.h"

static long stages, cells, rounds;
static uint64_t **block;
static pthread_barrier_t barrier;

static void *stage(void *argument)
{
    long s = (long)argument, wrong = 0;
    block[s] = pages((size_t)cells * sizeof(uint64_t));
    for (long i = 0; i < cells; i++)
        block[s][i] = 0;
    pthread_barrier_wait(&barrier);
    for (long round = 0; round < rounds; round++) {
        /* Odd stages in odd rounds, even ones in even: whoever is read does not write. */
        if ((s + round) % 2 == 0)
            for (long i = 0; i < cells; i++)
                block[s][i] = s == 0 ? (uint64_t)round : block[s - 1][i] + 1;
        pthread_barrier_wait(&barrier);
    }
    for (long i = 1; i < cells; i++)
        wrong += block[s][i] != block[s][0];
    return (void *)wrong;
}

int main(int argc, char **argv)
{
    stages = argument(argc, argv, 1, 8);
    cells = argument(argc, argv, 2, 32768);
    rounds = argument(argc, argv, 3, 30);
    block = calloc((size_t)stages, sizeof *block);
    pthread_t *thread = calloc((size_t)stages, sizeof *thread);
    long wrong = 0;
    pthread_barrier_init(&barrier, NULL, (unsigned)stages);
    for (long n = 0; n < stages; n++) {
        /* 0, half, 1, half + 1, ... */
        long half = (stages + 1) / 2, s = n % 2 ? half + n / 2 : n / 2;
        if (pthread_create(&thread[n], NULL, stage, (void *)s))
            return 1;
    }
    for (long n = 0; n < stages; n++) {
        void *its;
        pthread_join(thread[n], &its);
        wrong += (long)its;
    }
    return finish("chain", wrong, (uint64_t)rounds);
}
