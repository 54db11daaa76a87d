/* Random reads of one large table that the main thread filled: every thread reads all of it alike.
 *
 * Pages: no node is better than another for any page, but one node answers everything.
 * Usage: gather [CELLS=1000000] [READS=4000000] */
#include "../../workload.h"

int main(int argc, char **argv)
{
    long cells = argument(argc, argv, 1, 1000000), reads = argument(argc, argv, 2, 4000000);
    uint64_t *table = pages((size_t)cells * sizeof(uint64_t));
    for (long i = 0; i < cells; i++)
        table[i] = (uint64_t)i;
    long wrong = 0;
    uint64_t sum = 0;
#pragma omp parallel reduction(+ : wrong, sum)
    {
        uint64_t seed = (uint64_t)omp_get_thread_num() * 977 + 5;
#pragma omp for schedule(static)
        for (long n = 0; n < reads; n++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            long at = (long)((seed >> 33) % (uint64_t)cells);
            wrong += table[at] != (uint64_t)at;
            sum += table[at];
        }
    }
    return finish("gather", wrong, sum);
}
