/* LU factorisation, rows dealt to threads in turn, of a matrix that the main thread fills; AFTER: each thread fills the
   rows that it will eliminate. */
#include <stdio.h>
#include <stdlib.h>

enum { N = 256, PITCH = 512 };

int main(void)
{
    double(*a)[PITCH] = aligned_alloc(4096, sizeof *a * N);
#ifdef AFTER
#pragma omp parallel for schedule(static, 1)
#endif
    for (long row = 0; row < N; row++)
        for (long column = 0; column < N; column++)
            a[row][column] = row == column ? N : 1.0 / (row + column + 1);
    for (long pivot = 0; pivot < N - 1; pivot++) {
#pragma omp parallel
        {
#pragma omp for schedule(static, 1)
            for (long row = 0; row < N; row++) {
                if (row <= pivot)
                    continue;
                double factor = a[row][pivot] / a[pivot][pivot];
                a[row][pivot] = factor;
                for (long column = pivot + 1; column < N; column++)
                    a[row][column] -= factor * a[pivot][column];
            }
        }
    }
    printf("%g\n", a[N - 1][N - 1]);
    return 0;
}
