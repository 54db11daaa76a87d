/* One shared array that every thread reads, initialised and mostly read by the first quarter of the
 * threads; beside it each thread works on a buffer of its own.
 *
 * Communication: little (the array is written once).
 * Pages: all pages of the array belong, by locality, to the node of the first quarter, so a purely
 * local placement overloads that node's controller while the array's other readers wait for it.
 * Usage: hot_array [CELLS=65536] [ITERATIONS=20]
 */
#include "workload.h"

int main(int argc, char **argv)
{
    long cells = argument(argc, argv, 1, 65536), iterations = argument(argc, argv, 2, 20);
    uint64_t *array = pages((size_t)cells * sizeof(uint64_t));
    long wrong = 0;
    uint64_t sum = 0;
#pragma omp parallel reduction(+ : wrong, sum)
    {
        int t = omp_get_thread_num(), n = omp_get_num_threads();
        int quarter = n < 4 ? 1 : n / 4;
        long own_cells = cells / 8 + 1;
        uint64_t *own = pages((size_t)own_cells * sizeof(uint64_t));
        if (t < quarter)
            for (long i = cells * t / quarter; i < cells * (t + 1) / quarter; i++)
                array[i] = (uint64_t)i;
        for (long i = 0; i < own_cells; i++)
            own[i] = 0;
#pragma omp barrier
        /* The first quarter reads the array twice as often as the others. */
        int passes = t < quarter ? 2 : 1;
        for (long it = 0; it < iterations; it++)
            for (int pass = 0; pass < passes; pass++)
                for (long i = 0; i < cells; i++) {
                    wrong += array[i] != (uint64_t)i;
                    own[i % own_cells] += array[i];
                }
        for (long i = 0; i < own_cells; i++)
            sum += own[i];
        free(own);
    }
    return finish("hot_array", wrong, sum);
}
