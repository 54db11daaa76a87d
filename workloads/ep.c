/* Embarrassingly parallel: each thread mixes random numbers into a table of its own.
 *
 * Communication: none but the final reduction and the run-time library's.
 * Pages: each table is touched by its owner alone (exclusivity 1).
 * Usage: ep [CELLS=8192] [ITERATIONS=40]
 */
#include "workload.h"

int main(int argc, char **argv)
{
    long cells = argument(argc, argv, 1, 8192), iterations = argument(argc, argv, 2, 40);
    long wrong = 0;
    uint64_t sum = 0;
#pragma omp parallel reduction(+ : wrong, sum)
    {
        uint64_t *table = pages((size_t)cells * sizeof(uint64_t));
        uint64_t state = 88172645463325252u + (uint64_t)omp_get_thread_num();
        for (long i = 0; i < cells; i++)
            table[i] = (uint64_t)i;
        for (long it = 0; it < iterations; it++)
            for (long i = 0; i < cells; i++) {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                table[state % (uint64_t)cells] += state;
            }
        for (long i = 0; i < cells; i++)
            sum += table[i];
        wrong += state == 0;
        free(table);
    }
    return finish("ep", wrong, sum);
}
