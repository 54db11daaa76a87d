// Arrays that the main thread initialises; passes over them by a loop with a dynamic schedule.
//
//     scale ELEMENTS PASSES
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    long n = argc > 1 ? atol(argv[1]) : 1 << 18;
    int passes = argc > 2 ? atoi(argv[2]) : 10;
    double *x = malloc(n * sizeof *x);
    double *d = malloc(n * sizeof *d);
    if (!x || !d)
        return 1;
    for (long i = 0; i < n; i++) {
        x[i] = 1;
        d[i] = (double)i;
    }
    for (int pass = 0; pass < passes; pass++) {
#pragma omp parallel for schedule(dynamic, 1024)
        for (long i = 0; i < n; i++)
            x[i] = x[i] * 0.5 + d[i];
    }
    printf("%g\n", x[n - 1]);
    free(x);
    free(d);
    return 0;
}
