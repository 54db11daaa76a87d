/* A sparse triangular system, solved level by level, whose matrix the main thread assembles; AFTER: each thread
   assembles the rows that it solves, level by level. Its threads wait for each other after each level, which one pass over
   the rows that `advise` assumes does not need: half of the difference. */
#include <stdio.h>
#include <stdlib.h>

enum { LEVELS = 24, WIDTH = 2048, N = LEVELS * WIDTH, ENTRIES = 6 };

int main(void)
{
    int(*column)[ENTRIES] = malloc(sizeof *column * N);
    double(*value)[ENTRIES] = malloc(sizeof *value * N), *x = malloc(sizeof *x * N), *b = malloc(sizeof *b * N);
    for (long level = 0; level < LEVELS; level++) {
#ifdef AFTER
#pragma omp parallel for schedule(static)
#endif
        for (long row = level * WIDTH; row < (level + 1) * WIDTH; row++) {
            for (long k = 0; k < ENTRIES; k++) {
                long near = row % WIDTH + k * 17 - 40;
                column[row][k] = level == 0 ? 0 : (level - 1) * WIDTH + (near + WIDTH) % WIDTH;
                value[row][k] = 0.1 / (k + 1);
            }
            x[row] = 0;
            b[row] = row % 11;
        }
    }
    for (int times = 0; times < 2; times++)
        for (long level = 0; level < LEVELS; level++) {
#pragma omp parallel for schedule(static)
            for (long row = level * WIDTH; row < (level + 1) * WIDTH; row++) {
                double sum = b[row];
                if (level > 0)
                    for (long k = 0; k < ENTRIES; k++)
                        sum -= value[row][k] * x[column[row][k]];
                x[row] = sum;
            }
        }
    printf("%g\n", x[N - 1]);
    return 0;
}
