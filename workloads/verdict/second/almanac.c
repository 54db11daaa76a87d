/* Every thread looks up a table that the first one wrote, in an order of its own, and keeps notes in a buffer that it touched itself.
 *
 * Usage: almanac [ENTRIES=262144] [LOOKUPS=40000] [ROUNDS=4] */
#include "../../workload.h"

int main(int argc, char **argv)
{
    long entries = argument(argc, argv, 1, 262144), lookups = argument(argc, argv, 2, 40000);
    long rounds = argument(argc, argv, 3, 4), wrong = 0;
    uint64_t *table = pages((size_t)entries * sizeof *table), sum = 0;
    for (long i = 0; i < entries; i++)
        table[i] = (uint64_t)(3 * i);
#pragma omp parallel reduction(+ : wrong, sum)
    {
        uint64_t seed = (uint64_t)omp_get_thread_num() + 1;
        uint64_t *notes = pages((size_t)lookups * sizeof *notes);
        for (long round = 0; round < rounds; round++)
            for (long i = 0; i < lookups; i++) {
                seed = seed * 6364136223846793005u + 1442695040888963407u;
                long at = (long)((seed >> 33) % (uint64_t)entries);
                wrong += table[at] != (uint64_t)(3 * at);
                notes[i] += table[at];
            }
        for (long i = 0; i < lookups; i++)
            sum += notes[i];
    }
    return finish("almanac", wrong, sum != 0);
}
