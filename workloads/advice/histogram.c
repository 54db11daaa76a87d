// One histogram for all threads, filled with atomic additions from values that each thread has written.
// Arguments: THREADS [VALUES [BINS]].
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    int threads = atoi(argv[1]);
    long n = argc > 2 ? atol(argv[2]) : 100000, bins = argc > 3 ? atol(argv[3]) : 4096;
    unsigned *values = malloc(n * sizeof *values), *counts = calloc(bins, sizeof *counts);
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static)
        for (long i = 0; i < n; i++) values[i] = (unsigned)(i * 2654435761u) % bins;
#pragma omp for schedule(static)
        for (long i = 0; i < n; i++) __atomic_fetch_add(&counts[values[i]], 1, __ATOMIC_RELAXED);
    }
    printf("%u\n", counts[1]);
}
