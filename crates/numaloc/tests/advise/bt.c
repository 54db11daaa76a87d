/* Sweeps along three directions of a grid with five values at each point, as in block-tridiagonal solvers, of a grid that
   the main thread initialises; AFTER: each thread initialises its planes. */
#include <stdio.h>
#include <stdlib.h>

enum { N = 32, VALUES = 5, ROUNDS = 3 };
typedef double point[VALUES];
static point (*u)[N][N], (*rhs)[N][N];

static void sweep(point *previous, point *now, double weight)
{
    for (int m = 0; m < VALUES; m++)
        (*now)[m] -= weight * (*previous)[m];
}

int main(void)
{
    u = malloc(sizeof(point) * N * N * N);
    rhs = malloc(sizeof(point) * N * N * N);
#ifdef AFTER
#pragma omp parallel for schedule(static)
#endif
    for (int k = 0; k < N; k++)
        for (int j = 0; j < N; j++)
            for (int i = 0; i < N; i++)
                for (int m = 0; m < VALUES; m++) {
                    u[k][j][i][m] = i + 2 * j + 3 * k + m;
                    rhs[k][j][i][m] = 0;
                }
    for (int round = 0; round < ROUNDS; round++) {
#pragma omp parallel
        {
#pragma omp for schedule(static)
            for (int k = 0; k < N; k++)
                for (int j = 0; j < N; j++)
                    for (int i = 1; i < N - 1; i++)
                        for (int m = 0; m < VALUES; m++)
                            rhs[k][j][i][m] = 0.1 * (u[k][j][i - 1][m] - 2 * u[k][j][i][m] + u[k][j][i + 1][m]);
#pragma omp for schedule(static)
            for (int k = 0; k < N; k++)
                for (int j = 0; j < N; j++)
                    for (int i = 1; i < N; i++)
                        sweep(&rhs[k][j][i - 1], &rhs[k][j][i], 0.3);
#pragma omp for schedule(static)
            for (int k = 0; k < N; k++)
                for (int j = 1; j < N; j++)
                    for (int i = 0; i < N; i++)
                        sweep(&rhs[k][j - 1][i], &rhs[k][j][i], 0.2);
#pragma omp for schedule(static)
            for (int j = 0; j < N; j++)
                for (int k = 1; k < N; k++)
                    for (int i = 0; i < N; i++)
                        sweep(&rhs[k - 1][j][i], &rhs[k][j][i], 0.1);
#pragma omp for schedule(static)
            for (int k = 0; k < N; k++)
                for (int j = 0; j < N; j++)
                    for (int i = 0; i < N; i++)
                        for (int m = 0; m < VALUES; m++)
                            u[k][j][i][m] += rhs[k][j][i][m];
        }
    }
    printf("%g\n", u[N / 2][N / 2][N / 2][2]);
    return 0;
}
