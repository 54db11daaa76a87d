/* Two phases: neighbour pairs (2i, 2i+1) for the first half of the iterations, then distant pairs
 * (i, i+n/2). The mark "distant partners" says when the second half begins, at any number of iterations.
 *
 * Communication: two patterns that never overlap in time; a whole-run matrix mixes them.
 * Pages: each buffer is first touched and written by its owner; its reader changes half-way.
 * Usage: two_phase [CELLS=2048] [ITERATIONS=100]; an even number of threads
 */
#include "../shims/include/numaloc.h"
#include "workload.h"

int main(int argc, char **argv)
{
    long cells = argument(argc, argv, 1, 2048), iterations = argument(argc, argv, 2, 100);
    struct buffers b = make_buffers(cells);
    long wrong = 0;
    uint64_t sum = 0;
    if (omp_get_max_threads() % 2) {
        fprintf(stderr, "two_phase: %d threads, expected an even number\n", omp_get_max_threads());
        return 2;
    }
#pragma omp parallel reduction(+ : wrong, sum)
    {
        int t = omp_get_thread_num(), n = omp_get_num_threads();
        b.cell[t] = pages((size_t)cells * sizeof(uint64_t));
        for (long it = 0; it < iterations; it++) {
            int partner = it < iterations / 2 ? t ^ 1 : (t + n / 2) % n;
            if (t == 0 && it == iterations / 2)
                numaloc_mark("distant partners");
            write_own(&b, t, it);
#pragma omp barrier
            wrong += read_other(&b, partner, it, &sum);
#pragma omp barrier
        }
    }
    return finish("two_phase", wrong, sum);
}
