/* The neighbour ring with POSIX threads instead of OpenMP, and one mutex-protected counter.
 *
 * Communication: all on (t, t+-1 mod n) of the n workers; the main thread only starts and joins them,
 * so worker t is thread t+1 of the process.
 * Pages: each buffer is first touched and written by its owner, read by two neighbours.
 * Usage: pthread_ring [THREADS=8] [CELLS=2048] [ITERATIONS=100]
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static long threads = 8, cells = 2048, iterations = 100;
static uint64_t **buffer;
static pthread_barrier_t barrier;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t total, wrong;

static void *worker(void *argument)
{
    long t = (long)(intptr_t)argument;
    uint64_t sum = 0, bad = 0;
    buffer[t] = aligned_alloc(4096, (size_t)((cells * 8 + 4095) / 4096 * 4096));
    for (long it = 0; it < iterations; it++) {
        for (long i = 0; i < cells; i++)
            buffer[t][i] = (uint64_t)(t * 1000003 + it * 7919 + i);
        pthread_barrier_wait(&barrier);
        for (long side = 1; side <= threads - 1; side += threads > 2 ? threads - 2 : 1) {
            long other = (t + side) % threads;
            for (long i = 0; i < cells; i++) {
                bad += buffer[other][i] != (uint64_t)(other * 1000003 + it * 7919 + i);
                sum += buffer[other][i];
            }
        }
        pthread_barrier_wait(&barrier);
    }
    pthread_mutex_lock(&lock);
    total += sum;
    wrong += bad;
    pthread_mutex_unlock(&lock);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1) threads = atol(argv[1]);
    if (argc > 2) cells = atol(argv[2]);
    if (argc > 3) iterations = atol(argv[3]);
    if (threads < 2 || cells < 1 || iterations < 1) {
        fprintf(stderr, "usage: %s [THREADS>=2] [CELLS>=1] [ITERATIONS>=1]\n", argv[0]);
        return 2;
    }
    pthread_t *handle = calloc((size_t)threads, sizeof *handle);
    buffer = calloc((size_t)threads, sizeof *buffer);
    pthread_barrier_init(&barrier, 0, (unsigned)threads);
    for (long t = 0; t < threads; t++)
        if (pthread_create(&handle[t], 0, worker, (void *)(intptr_t)t)) {
            perror("pthread_create");
            return 1;
        }
    for (long t = 0; t < threads; t++)
        pthread_join(handle[t], 0);
    printf("pthread_ring: %ld threads, checksum %016llx, %llu wrong\n", threads,
           (unsigned long long)total, (unsigned long long)wrong);
    return wrong != 0;
}
