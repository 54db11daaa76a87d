/* Exchange with thread t^1 in most rounds, with t^2 and t^4 in few: the pattern of a recursive doubling whose
 * first step carries most. The buffers are made by the partner.
 *
 * Usage: butterfly [CELLS=32768] [ROUNDS=16] */
#include "../../workload.h"

int main(int argc, char **argv)
{
    long cells = argument(argc, argv, 1, 32768), rounds = argument(argc, argv, 2, 16);
    struct buffers b = make_buffers(cells);
    long wrong = 0;
    uint64_t sum = 0;
#pragma omp parallel reduction(+ : wrong, sum)
    {
        int t = omp_get_thread_num(), n = omp_get_num_threads();
        int partner = (t ^ 1) < n ? t ^ 1 : t;
        b.cell[partner] = pages((size_t)cells * sizeof(uint64_t));
        for (long i = 0; i < cells; i++)
            b.cell[partner][i] = 0;
#pragma omp barrier
        for (long round = 0; round < rounds; round++) {
            int step = round % 8 == 6 ? 2 : round % 8 == 7 ? 4 : 1, other = (t ^ step) < n ? t ^ step : t;
            write_own(&b, t, round);
#pragma omp barrier
            wrong += read_other(&b, other, round, &sum);
#pragma omp barrier
        }
    }
    return finish("butterfly", wrong, sum);
}
