// A sparse matrix whose rows have very different lengths, times a vector; rows are handed out by a dynamic schedule, and
// each row reads columns near its own.
//
//     rows ROWS PASSES
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    long n = argc > 1 ? atol(argv[1]) : 1 << 14;
    int passes = argc > 2 ? atoi(argv[2]) : 10;
    long *start = malloc((n + 1) * sizeof *start);
    if (!start)
        return 1;
    unsigned state = 1;
    start[0] = 0;
    for (long row = 0; row < n; row++) {
        state = state * 1664525u + 1013904223u;
        // Every 16th row is long.
        start[row + 1] = start[row] + (row % 16 ? 4 + (state >> 28) : 128 + (state >> 26));
    }
    long entries = start[n];
    int *column = malloc(entries * sizeof *column);
    double *value = malloc(entries * sizeof *value);
    double *x = malloc(n * sizeof *x);
    double *y = malloc(n * sizeof *y);
    if (!column || !value || !x || !y)
        return 1;
    for (long row = 0; row < n; row++) {
        x[row] = 1;
        y[row] = 0;
        for (long at = start[row]; at < start[row + 1]; at++) {
            column[at] = (int)((row + at - start[row]) % n);
            value[at] = 0.5;
        }
    }
    for (int pass = 0; pass < passes; pass++) {
#pragma omp parallel for schedule(dynamic, 16)
        for (long row = 0; row < n; row++) {
            double sum = 0;
            for (long at = start[row]; at < start[row + 1]; at++)
                sum += value[at] * x[column[at]];
            y[row] += sum;
        }
    }
    printf("%g\n", y[n / 2]);
    return 0;
}
