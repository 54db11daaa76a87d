/* Sorting into buckets: each thread scatters its own keys into the buckets of all, then works on its own bucket.
 *
 * Usage: buckets [KEYS=400000] [ROUNDS=3] */
#include "../../workload.h"

int main(int argc, char **argv)
{
    long keys = argument(argc, argv, 1, 400000), rounds = argument(argc, argv, 2, 3);
    int n = omp_get_max_threads();
    uint64_t *key = pages((size_t)keys * sizeof *key), *sorted = pages((size_t)keys * sizeof *sorted);
    long *start = calloc((size_t)(n * n + 1), sizeof *start);
    long wrong = 0;
    uint64_t sum = 0;
#pragma omp parallel reduction(+ : wrong, sum)
    {
        int t = omp_get_thread_num();
        long from = keys * t / n, to = keys * (t + 1) / n, *mine = calloc((size_t)n, sizeof *mine);
        uint64_t seed = (uint64_t)t + 11;
        for (long i = from; i < to; i++)
            sorted[i] = 0;
        for (long round = 0; round < rounds; round++) {
            for (int b = 0; b < n; b++)
                mine[b] = 0;
            for (long i = from; i < to; i++) {
                seed = seed * 6364136223846793005u + 1442695040888963407u;
                key[i] = seed >> 33;
                mine[key[i] % (uint64_t)n]++;
            }
            for (int b = 0; b < n; b++)
                start[b * n + t + 1] = mine[b];
#pragma omp barrier
#pragma omp single
            for (int c = 0; c < n * n; c++)
                start[c + 1] += start[c];
            for (int b = 0; b < n; b++)
                mine[b] = start[b * n + t];
            for (long i = from; i < to; i++)
                sorted[mine[key[i] % (uint64_t)n]++] = key[i];
#pragma omp barrier
            for (int pass = 0; pass < 4; pass++)
                for (long i = start[t * n]; i < start[(t + 1) * n]; i++) {
                    wrong += sorted[i] % (uint64_t)n != (uint64_t)t;
                    sum += sorted[i];
                }
#pragma omp barrier
#pragma omp single
            for (int c = 0; c <= n * n; c++)
                start[c] = 0;
        }
        free(mine);
    }
    return finish("buckets", wrong, sum);
}
