/* Dense Cholesky factorisation by blocks that the main thread fills; AFTER: each thread fills the block rows that it
   updates. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCKS = 16, B = 16 };
typedef double block[B][B];

static void update(block c, const block a, const block b)
{
    for (int i = 0; i < B; i++)
        for (int k = 0; k < B; k++) {
            double factor = a[i][k];
            for (int j = 0; j < B; j++)
                c[i][j] -= factor * b[j][k];
        }
}

static void solve(block c, const block diagonal)
{
    for (int i = 0; i < B; i++)
        for (int j = 0; j < B; j++) {
            double sum = c[i][j];
            for (int k = 0; k < j; k++)
                sum -= c[i][k] * diagonal[j][k];
            c[i][j] = sum / diagonal[j][j];
        }
}

static void factor(block c)
{
    for (int j = 0; j < B; j++) {
        for (int k = 0; k < j; k++)
            for (int i = j; i < B; i++)
                c[i][j] -= c[i][k] * c[j][k];
        double root = sqrt(c[j][j]);
        for (int i = j; i < B; i++)
            c[i][j] /= root;
    }
}

int main(void)
{
    block(*a)[BLOCKS] = aligned_alloc(4096, sizeof *a * BLOCKS);
#ifdef AFTER
#pragma omp parallel for schedule(static, 1)
#endif
    for (long row = 0; row < BLOCKS; row++)
        for (long column = 0; column < BLOCKS; column++)
            for (int i = 0; i < B; i++)
                for (int j = 0; j < B; j++)
                    a[row][column][i][j] = row == column && i == j ? 2.0 * B * BLOCKS : 1.0 / (1 + labs(row * B + i - column * B - j));
    for (long step = 0; step < BLOCKS; step++) {
        factor(a[step][step]);
#pragma omp parallel for schedule(static, 1)
        for (long row = 0; row < BLOCKS; row++)
            if (row > step)
                solve(a[row][step], a[step][step]);
#pragma omp parallel for schedule(static, 1)
        for (long row = 0; row < BLOCKS; row++)
            for (long column = step + 1; column <= row; column++)
                update(a[row][column], a[row][step], a[column][step]);
    }
    printf("%g\n", a[BLOCKS - 1][0][1][1]);
    return 0;
}
