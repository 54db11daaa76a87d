/* Stages of a fast Fourier transform that goes between two arrays (Stockham); the main thread fills the signal and the
   second array, AFTER: each thread a part. */
#include <complex.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { LOG = 16, N = 1 << LOG };

int main(void)
{
    double complex *x = malloc(sizeof *x * N), *y = malloc(sizeof *y * N), *roots = malloc(sizeof *roots * (N / 2));
#ifdef AFTER
#pragma omp parallel for schedule(static)
#endif
    for (long at = 0; at < N; at++) {
        x[at] = (at * 37) % 101;
        y[at] = 0;
    }
#ifdef AFTER
#pragma omp parallel for schedule(static)
#endif
    for (long at = 0; at < N / 2; at++) {
        double angle = -6.283185307179586 * at / N;
        roots[at] = 1 - angle * angle / 2 + angle * I;
    }
    for (int stage = 0; stage < LOG; stage++) {
        long stride = 1l << stage;
#pragma omp parallel for schedule(static)
        for (long at = 0; at < N / 2; at++) {
            long inner = at & (stride - 1), outer = at >> stage;
            double complex a = x[at], b = x[at + N / 2], w = roots[outer << stage];
            double re = creal(a) - creal(b), im = cimag(a) - cimag(b);
            long to = (outer << (stage + 1)) + inner;
            y[to] = a + b;
            y[to + stride] = CMPLX(re * creal(w) - im * cimag(w), re * cimag(w) + im * creal(w));
        }
        double complex *other = x;
        x = y, y = other;
    }
    printf("%g\n", creal(x[1]));
    return 0;
}
