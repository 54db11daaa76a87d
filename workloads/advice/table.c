// Random look-ups in a table that main has written; results go to memory of each thread.
// Arguments: THREADS [ENTRIES [LOOKUPS]].
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    int threads = atoi(argv[1]);
    long n = argc > 2 ? atol(argv[2]) : 200000, all = argc > 3 ? atol(argv[3]) : 100000;
    long *table = malloc(n * sizeof *table), sum = 0;
    for (long i = 0; i < n; i++) table[i] = i * 3;
#pragma omp parallel num_threads(threads) reduction(+ : sum)
    {
        unsigned long seed = omp_get_thread_num() + 1;
        for (long i = 0; i < all / threads; i++) {
            seed = seed * 6364136223846793005ul + 1442695040888963407ul;
            sum += table[(seed >> 33) % n];
        }
    }
    printf("%ld\n", sum);
}
