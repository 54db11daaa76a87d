// Cholesky factorisation by columns: each step updates the columns to the right, which threads share out with
// dynamic schedule. Main initialises the matrix. Arguments: THREADS [SIDE].
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    int threads = atoi(argv[1]);
    long n = argc > 2 ? atol(argv[2]) : 128;
    double *a = malloc(n * n * sizeof *a);
    for (long i = 0; i < n; i++)
        for (long j = 0; j < n; j++) a[i * n + j] = i == j ? 2.0 * n : 1.0 / (1 + labs(i - j));
    for (long k = 0; k < n; k++) {
        a[k * n + k] = sqrt(a[k * n + k]);
        for (long i = k + 1; i < n; i++) a[k * n + i] /= a[k * n + k];
#pragma omp parallel for num_threads(threads) schedule(dynamic, 4) if (n - k > 32)
        for (long j = k + 1; j < n; j++)
            for (long i = j; i < n; i++) a[j * n + i] -= a[k * n + j] * a[k * n + i];
    }
    printf("%g\n", a[n * n - 1]);
}
