// Seven-point stencil on a cube, planes in blocks, initialised by the threads that compute them.
// Arguments: THREADS [SIDE].
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    int threads = atoi(argv[1]);
    long n = argc > 2 ? atol(argv[2]) : 48, plane = n * n;
    double *a = malloc(n * plane * sizeof *a), *b = malloc(n * plane * sizeof *b);
#pragma omp parallel for collapse(2) num_threads(threads) schedule(static)
    for (long z = 0; z < n; z++)
        for (long y = 0; y < n; y++)
            for (long x = 0; x < n; x++) a[z * plane + y * n + x] = b[z * plane + y * n + x] = x + y * z;
    for (int step = 0; step < 2; step++) {
#pragma omp parallel for collapse(2) num_threads(threads) schedule(static)
        for (long z = 1; z < n - 1; z++)
            for (long y = 1; y < n - 1; y++)
                for (long x = 1; x < n - 1; x++) {
                    double *at = a + z * plane + y * n + x;
                    b[at - a] = 0.4 * at[0] + 0.1 * (at[-1] + at[1] + at[-n] + at[n] + at[-plane] + at[plane]);
                }
        double *other = a;
        a = b;
        b = other;
    }
    printf("%g\n", a[plane + n + 1]);
}
