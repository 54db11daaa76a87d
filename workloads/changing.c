/* Partners that change with time: for SECONDS each, every thread reads the buffer of the thread at distance 1, n/2, and n/4,
 * over and over.
 *
 * Communication: pairs (distance 1, n/2) or rings (n/4), in turn.
 * Pages: each buffer is first touched and written by its owner; its reader changes.
 * Usage: changing [CELLS=2048] [SECONDS=10] [CHANGES=6]; a number of threads that 4 divides */
#include "workload.h"

int main(int argc, char **argv)
{
    long cells = argument(argc, argv, 1, 2048), seconds = argument(argc, argv, 2, 10), changes = argument(argc, argv, 3, 6);
    struct buffers b = make_buffers(cells);
    long wrong = 0, iterations = 0, phase = 0;
    uint64_t sum = 0;
    double begun = omp_get_wtime();
    if (omp_get_max_threads() % 4) {
        fprintf(stderr, "changing: %d threads, expected a multiple of 4\n", omp_get_max_threads());
        return 2;
    }
#pragma omp parallel reduction(+ : wrong, sum)
    {
        int t = omp_get_thread_num(), n = omp_get_num_threads();
        b.cell[t] = pages((size_t)cells * sizeof(uint64_t));
        for (long it = 0;; it++) {
            write_own(&b, t, it);
            if (t == 0) {
                phase = (long)((omp_get_wtime() - begun) / (double)seconds);
                iterations = it;
            }
#pragma omp barrier
            if (phase >= changes)
                break;
            int partner = phase % 3 == 0 ? t ^ 1 : phase % 3 == 1 ? (t + n / 2) % n : (t + n / 4) % n;
            wrong += read_other(&b, partner, it, &sum);
#pragma omp barrier
        }
    }
    fprintf(stderr, "changing: %ld iterations\n", iterations);
    return finish("changing", wrong, sum);
}
