/* Neighbour pairs: threads 2i and 2i+1 read each other's buffer.
 *
 * Communication: all on (2i, 2i+1). With an odd number of threads the last one is idle.
 * Pages: each buffer is first touched and written by its owner, read by its partner.
 * Usage: pairs [CELLS=2048] [ITERATIONS=100] */
#include "workload.h"

int main(int argc, char **argv)
{
    long cells = argument(argc, argv, 1, 2048), iterations = argument(argc, argv, 2, 100);
    struct buffers b = make_buffers(cells);
    long wrong = 0;
    uint64_t sum = 0;
#pragma omp parallel reduction(+ : wrong, sum)
    {
        int t = omp_get_thread_num(), n = omp_get_num_threads();
        b.cell[t] = pages((size_t)cells * sizeof(uint64_t));
        for (long it = 0; it < iterations; it++) {
            write_own(&b, t, it);
#pragma omp barrier
            if ((t ^ 1) < n)
                wrong += read_other(&b, t ^ 1, it, &sum);
#pragma omp barrier
        }
    }
    return finish("pairs", wrong, sum);
}
