/* A triad over arrays that the main thread initialises; AFTER: the loop's threads do. */
#include <stdio.h>
#include <stdlib.h>

#ifndef N
#define N 400000L
#endif

int main(void)
{
    enum { ROUNDS = 8 };
    double *a = malloc(N * sizeof *a), *b = malloc(N * sizeof *b), *c = malloc(N * sizeof *c);
#ifdef AFTER
#pragma omp parallel for schedule(static)
#endif
    for (long i = 0; i < N; i++) {
        a[i] = 1;
        b[i] = i;
        c[i] = 2 * i;
    }
    for (int round = 0; round < ROUNDS; round++) {
#pragma omp parallel for schedule(static)
        for (long i = 0; i < N; i++)
            a[i] = b[i] + 3 * c[i];
    }
    printf("%g\n", a[N - 1]);
    return 0;
}
