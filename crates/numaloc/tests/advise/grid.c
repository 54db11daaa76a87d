/* Sweeps over a grid in bands of rows, one for each thread; the main thread fills it, AFTER: each thread its band. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 8, ROWS = 512, COLUMNS = 1024, SWEEPS = 6 };
static double (*from)[COLUMNS], (*to)[COLUMNS];
static pthread_barrier_t barrier;

static void fill(int first, int last)
{
    for (int row = first; row < last; row++)
        for (int column = 0; column < COLUMNS; column++) {
            from[row][column] = row + column;
            to[row][column] = 0;
        }
}

static void *work(void *number)
{
    long id = (long)number;
    int first = id * ROWS / THREADS, last = (id + 1) * ROWS / THREADS;
#ifdef AFTER
    fill(first, last);
    pthread_barrier_wait(&barrier);
#endif
    double(*in)[COLUMNS] = from, (*out)[COLUMNS] = to;
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        for (int row = first; row < last; row++) {
            if (row == 0 || row == ROWS - 1)
                continue;
            for (int column = 1; column < COLUMNS - 1; column++)
                out[row][column] = 0.25 * (in[row - 1][column] + in[row + 1][column] + in[row][column - 1] + in[row][column + 1]);
        }
        double(*swap)[COLUMNS] = in;
        in = out;
        out = swap;
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    from = malloc(sizeof *from * ROWS);
    to = malloc(sizeof *to * ROWS);
    pthread_barrier_init(&barrier, NULL, THREADS);
#ifndef AFTER
    fill(0, ROWS);
#endif
    for (long at = 0; at < THREADS; at++)
        pthread_create(&threads[at], NULL, work, (void *)at);
    for (int at = 0; at < THREADS; at++)
        pthread_join(threads[at], NULL);
    printf("%g\n", from[ROWS / 2][COLUMNS / 2]);
    return 0;
}
