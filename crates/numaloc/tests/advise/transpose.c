/* A matrix is transposed in tiles, forth and back; the main thread fills both matrices, AFTER: each thread the rows that
   it reads and those that it writes. The compiler makes a calloc of the main thread's zeros, so that
   only the changed program stores them: a tenth more accesses, which nobody can predict. */
#include <stdio.h>
#include <stdlib.h>

enum { N = 512, TILE = 16, ROUNDS = 2 };

static void transpose(double (*to)[N], double (*from)[N])
{
#pragma omp parallel for schedule(static)
    for (long row = 0; row < N; row += TILE)
        for (long column = 0; column < N; column += TILE)
            for (long i = row; i < row + TILE; i++)
                for (long j = column; j < column + TILE; j++)
                    to[i][j] = from[j][i];
}

int main(void)
{
    double(*a)[N] = malloc(sizeof *a * N), (*b)[N] = malloc(sizeof *b * N);
#ifdef AFTER
#pragma omp parallel for schedule(static)
#endif
    for (long row = 0; row < N; row++)
        for (long column = 0; column < N; column++) {
            a[row][column] = row * 0.5 + column;
            b[row][column] = 0;
        }
    for (int round = 0; round < ROUNDS; round++) {
        transpose(b, a);
        transpose(a, b);
    }
    printf("%g\n", a[3][5]);
    return 0;
}
