/* Two halves take turns: each thread of the first half fills its buffer, then each of the second half reads the buffer of its
 * partner, several times. All buffers were touched by the first half.
 *
 * Usage: relay [CELLS=65536] [ROUNDS=6] */
#include "../../workload.h"

int main(int argc, char **argv)
{
    long cells = argument(argc, argv, 1, 65536), rounds = argument(argc, argv, 2, 6), wrong = 0;
    int all = omp_get_max_threads(), half = all > 1 ? all / 2 : 1;
    uint64_t *buffers = pages((size_t)half * (size_t)cells * sizeof *buffers), sum = 0;
#pragma omp parallel reduction(+ : wrong, sum)
    {
        int t = omp_get_thread_num();
        uint64_t *mine = buffers + (t % half) * cells;
        for (long round = 0; round < rounds; round++) {
            if (t < half)
                for (long i = 0; i < cells; i++)
                    mine[i] = (uint64_t)(i * (round + 1) + t);
#pragma omp barrier
            if (t >= half || all == 1)
                for (long pass = 0; pass < 3; pass++)
                    for (long i = 0; i < cells; i++) {
                        wrong += mine[i] != (uint64_t)(i * (round + 1) + t % half);
                        sum += mine[i];
                    }
#pragma omp barrier
        }
    }
    return finish("relay", wrong, sum);
}
