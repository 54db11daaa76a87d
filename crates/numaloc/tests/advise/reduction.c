/* A sum over a large array, added to one shared total; AFTER: a reduction. */
#include <stdio.h>
#include <stdlib.h>

enum { N = 300000 };

int main(void)
{
    double *values = malloc(sizeof *values * N);
    double total = 0;
#pragma omp parallel for schedule(static)
    for (long at = 0; at < N; at++)
        values[at] = at * 0.25;
#ifdef AFTER
#pragma omp parallel for schedule(static) reduction(+ : total)
#else
#pragma omp parallel for schedule(static)
#endif
    for (long at = 0; at < N; at++) {
#ifndef AFTER
#pragma omp atomic
#endif
        total += values[at];
    }
    printf("%g\n", total);
    return 0;
}
