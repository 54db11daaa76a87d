/* One thread that follows pointers through a ring larger than any private cache.
 *
 * Nothing to map, nothing to place: every page has one user.
 * Usage: chase [CELLS=600000] [STEPS=3000000] */
#include "../../workload.h"

int main(int argc, char **argv)
{
    long cells = argument(argc, argv, 1, 600000), steps = argument(argc, argv, 2, 3000000);
    long *next = pages((size_t)cells * sizeof(long));
    for (long i = 0; i < cells; i++)
        next[i] = i;
    uint64_t seed = 3;
    for (long i = cells - 1; i > 0; i--) {
        /* Sattolo: one ring through all cells. */
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        long j = (long)((seed >> 33) % (uint64_t)i), keep = next[i];
        next[i] = next[j];
        next[j] = keep;
    }
    long at = 0;
    for (long step = 0; step < steps; step++)
        at = next[at];
    printf("chase: 1 thread, at %ld\n", at);
    return 0;
}
