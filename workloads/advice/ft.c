// Passes over rows, a transposition, and passes again, as a two-dimensional Fourier transform makes them. Main
// initialises the matrix. Arguments: THREADS [SIDE].
#include <stdio.h>
#include <stdlib.h>
static void pass(double *row, long side) {
    for (long half = 1; half < side; half *= 4)
        for (long i = 0; i + half < side; i++) row[i] = 0.5 * (row[i] + row[i + half]);
}
int main(int argc, char **argv) {
    int threads = atoi(argv[1]);
    long side = argc > 2 ? atol(argv[2]) : 256;
    double *a = malloc(side * side * sizeof *a), *b = malloc(side * side * sizeof *b);
    for (long i = 0; i < side * side; i++) a[i] = i % 97;
    for (int turn = 0; turn < 2; turn++) {
#pragma omp parallel for num_threads(threads) schedule(static)
        for (long i = 0; i < side; i++) pass(a + i * side, side);
#pragma omp parallel for num_threads(threads) schedule(static)
        for (long i = 0; i < side; i++)
            for (long j = 0; j < side; j++) b[i * side + j] = a[j * side + i];
        double *other = a;
        a = b;
        b = other;
    }
    printf("%g\n", a[side + 1]);
}
