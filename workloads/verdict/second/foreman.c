/* One thread makes the work and reads the results, the others do it: every block of memory is the first thread's.
 *
 * Usage: foreman [BLOCKS=112] [CELLS=4096] [ROUNDS=4] */
#include "../../workload.h"

int main(int argc, char **argv)
{
    long blocks = argument(argc, argv, 1, 112), cells = argument(argc, argv, 2, 4096);
    long rounds = argument(argc, argv, 3, 4), wrong = 0;
    uint64_t *work = pages((size_t)blocks * (size_t)cells * sizeof *work), sum = 0;
#pragma omp parallel reduction(+ : wrong, sum)
    {
        int t = omp_get_thread_num(), n = omp_get_num_threads();
        for (long round = 0; round < rounds; round++) {
            if (t == 0)
                for (long i = 0; i < blocks * cells; i++)
                    work[i] = (uint64_t)(i + round);
#pragma omp barrier
            for (long b = 0; b < blocks; b++)
                if (n == 1 || (t > 0 && b % (n - 1) == t - 1))
                    for (long pass = 0; pass < 5; pass++)
                        for (long i = b * cells; i < (b + 1) * cells; i++)
                            work[i] += 3;
#pragma omp barrier
            if (t == 0)
                for (long i = 0; i < blocks * cells; i++) {
                    wrong += work[i] != (uint64_t)(i + round + 15);
                    sum += work[i];
                }
#pragma omp barrier
        }
    }
    return finish("foreman", wrong, sum);
}
