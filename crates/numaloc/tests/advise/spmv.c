/* Rows of a sparse matrix times a vector, and a scaled copy; AFTER: the loops that fill them are parallel too. */
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 30000, BAND = 7, ROUNDS = 4 };

int main(void)
{
    double *value = malloc(sizeof *value * ROWS * BAND), *in = malloc(sizeof *in * (ROWS + BAND));
    double *out = malloc(sizeof *out * ROWS);
    double sum = 0;
#ifdef AFTER
#pragma omp parallel for schedule(static)
#endif
    for (long row = 0; row < ROWS; row++) {
        for (int at = 0; at < BAND; at++)
            value[row * BAND + at] = 1.0 / (1 + at + row % 5);
        in[row] = 1;
        out[row] = 0;
    }
    for (int at = 0; at < BAND; at++)
        in[ROWS + at] = 0;
    for (int round = 0; round < ROUNDS; round++) {
#pragma omp parallel for schedule(static)
        for (long row = 0; row < ROWS; row++) {
            double total = 0;
            for (int at = 0; at < BAND; at++)
                total += value[row * BAND + at] * in[row + at];
            out[row] = total;
        }
#pragma omp parallel for schedule(static) reduction(+ : sum)
        for (long row = 0; row < ROWS; row++) {
            in[row] = out[row] * 0.5;
            sum += out[row];
        }
    }
    printf("%g\n", sum);
    return 0;
}
