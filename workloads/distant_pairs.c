/* Distant pairs: threads i and i+n/2 read each other's buffer.
 *
 * Communication: all on (i, i+n/2), the pairs that neighbour-friendly mappings tear apart.
 * Pages: each buffer is first touched and written by its owner, read by its partner.
 * Usage: distant_pairs [CELLS=2048] [ITERATIONS=100] */
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
            if (t < n / 2 * 2)
                wrong += read_other(&b, (t + n / 2) % (n / 2 * 2), it, &sum);
#pragma omp barrier
        }
    }
    return finish("distant_pairs", wrong, sum);
}
