/* A wave over a grid: every cell needs its left and upper neighbour; POSIX threads own stripes of columns, which
 * they fill themselves, and hand each row on to the right.
 *
 * Usage: wavefront [THREADS=8] [ROWS=300] [COLUMNS=1600] [WAVES=6] */
#include <pthread.h>
#include <stdatomic.h>
#include <sched.h>

#include "../../workload.h"

static long threads, rows, columns, waves;
static uint32_t *grid;
static _Atomic long *done;
static pthread_barrier_t barrier;

/* Stripe t of row y: stripes lie one after the other, so that each has pages of its own. */
static uint32_t *stripe(long t, long y)
{
    long width = columns / threads;
    return grid + t * rows * width + y * width;
}

static void *work(void *argument)
{
    long t = (long)argument, width = columns / threads;
    for (long y = 0; y < rows; y++)
        for (long x = 0; x < width; x++)
            stripe(t, y)[x] = 1;
    pthread_barrier_wait(&barrier);
    for (long wave = 0; wave < waves; wave++)
        for (long y = 0; y < rows; y++) {
            while (t > 0 && atomic_load(&done[16 * (t - 1)]) < wave * rows + y + 1)
                sched_yield();
            uint32_t left = t > 0 ? stripe(t - 1, y)[width - 1] : 0;
            for (long x = 0; x < width; x++) {
                left = (left + (y > 0 ? stripe(t, y - 1)[x] : 1)) % 1000003;
                stripe(t, y)[x] = left;
            }
            atomic_store(&done[16 * t], wave * rows + y + 1);
        }
    return NULL;
}

int main(int argc, char **argv)
{
    threads = argument(argc, argv, 1, 8);
    rows = argument(argc, argv, 2, 300);
    columns = argument(argc, argv, 3, 1600);
    waves = argument(argc, argv, 4, 6);
    grid = pages((size_t)rows * (size_t)columns * sizeof *grid);
    done = calloc((size_t)threads * 16, sizeof *done);
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    pthread_t *thread = calloc((size_t)threads, sizeof *thread);
    for (long t = 0; t < threads; t++)
        if (pthread_create(&thread[t], NULL, work, (void *)t))
            return 1;
    for (long t = 0; t < threads; t++)
        pthread_join(thread[t], NULL);
    return finish("wavefront", 0, stripe(threads - 1, rows - 1)[0]);
}
