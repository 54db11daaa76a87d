/* Neighbour ring: thread t reads what t-1 and t+1 (mod n) wrote.
 *
 * Communication: all on (t, t+-1 mod n), equal amounts both ways.
 * Pages: each buffer is first touched and written by its owner, read by two neighbours.
 * Usage: ring [CELLS=2048] [ITERATIONS=100] */
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
            wrong += read_other(&b, (t + 1) % n, it, &sum);
            wrong += read_other(&b, (t + n - 1) % n, it, &sum);
#pragma omp barrier
        }
    }
    return finish("ring", wrong, sum);
}
