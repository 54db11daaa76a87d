// Integer sort: every thread counts its keys in a histogram of its own, the histograms are summed, and the keys
// are written to their places. Keys are drawn by the threads that count them. Arguments: THREADS [KEYS].
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#define BUCKETS 256
int main(int argc, char **argv) {
    int threads = atoi(argv[1]);
    long n = argc > 2 ? atol(argv[2]) : 200000;
    unsigned *keys = malloc(n * sizeof *keys), *sorted = malloc(n * sizeof *sorted);
    unsigned *counts = calloc((size_t)threads * BUCKETS, sizeof *counts);
#pragma omp parallel num_threads(threads)
    {
        int me = omp_get_thread_num();
        unsigned *own = counts + (size_t)me * BUCKETS, seed = 7u * me + 1;
#pragma omp for schedule(static)
        for (long i = 0; i < n; i++) {
            seed = seed * 1664525u + 1013904223u;
            keys[i] = seed >> 24;
            own[keys[i]]++;
        }
#pragma omp single
        {
            unsigned sum = 0;
            for (int bucket = 0; bucket < BUCKETS; bucket++)
                for (int t = 0; t < threads; t++) {
                    unsigned count = counts[(size_t)t * BUCKETS + bucket];
                    counts[(size_t)t * BUCKETS + bucket] = sum;
                    sum += count;
                }
        }
#pragma omp for schedule(static)
        for (long i = 0; i < n; i++) sorted[own[keys[i]]++] = keys[i];
    }
    for (long i = 1; i < n; i++)
        if (sorted[i - 1] > sorted[i]) return 1;
    puts("sorted");
}
