/* Binary searches of all threads in one sorted table that they filled together, in blocks.
 *
 * Usage: search [CELLS=500000] [LOOKUPS=160000] */
#include "../../workload.h"

int main(int argc, char **argv)
{
    long cells = argument(argc, argv, 1, 500000), lookups = argument(argc, argv, 2, 160000), wrong = 0;
    uint64_t *table = pages((size_t)cells * sizeof *table), sum = 0;
#pragma omp parallel reduction(+ : wrong, sum)
    {
        uint64_t seed = (uint64_t)omp_get_thread_num() * 31 + 7;
#pragma omp for schedule(static)
        for (long i = 0; i < cells; i++)
            table[i] = 3 * (uint64_t)i;
#pragma omp for schedule(static)
        for (long n = 0; n < lookups; n++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            uint64_t wanted = 3 * ((seed >> 33) % (uint64_t)cells);
            long low = 0, high = cells;
            while (high - low > 1) {
                long middle = (low + high) / 2;
                if (table[middle] <= wanted)
                    low = middle;
                else
                    high = middle;
            }
            wrong += table[low] != wanted;
            sum += (uint64_t)low;
        }
    }
    return finish("search", wrong, sum);
}
