// An array that a loop with a guided schedule initialises, and passes over it by a loop with a dynamic one: without
// dealing, who touches a page first says nothing of who uses it.
//
//     filled ELEMENTS PASSES
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    long n = argc > 1 ? atol(argv[1]) : 1 << 19;
    int passes = argc > 2 ? atoi(argv[2]) : 10;
    double *x = malloc(n * sizeof *x);
    if (!x)
        return 1;
#pragma omp parallel for schedule(guided, 512)
    for (long i = 0; i < n; i++)
        x[i] = (double)i;
    for (int pass = 0; pass < passes; pass++) {
#pragma omp parallel for schedule(dynamic, 1024)
        for (long i = 0; i < n; i++)
            x[i] = x[i] * 0.5 + 1;
    }
    printf("%g\n", x[n - 1]);
    free(x);
    return 0;
}
