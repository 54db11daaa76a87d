/* Sparse matrix times vector, ten entries a row near the diagonal and two far from it; the whole matrix is
 * built by the main thread, rows are dealt to threads in blocks.
 *
 * Pages: matrix and result lie where the main thread ran, each page is used by one thread.
 * Usage: spmv [ROWS=20000] [ITERATIONS=12] */
#include "../../workload.h"

enum { NEAR = 10, FAR = 2, PER_ROW = NEAR + FAR };

int main(int argc, char **argv)
{
    long rows = argument(argc, argv, 1, 20000), iterations = argument(argc, argv, 2, 12);
    double *value = pages((size_t)rows * PER_ROW * sizeof(double));
    int *column = pages((size_t)rows * PER_ROW * sizeof(int));
    double *vector[2] = {pages((size_t)rows * sizeof(double)), pages((size_t)rows * sizeof(double))};
    uint64_t seed = 1;
    for (long row = 0; row < rows; row++) {
        vector[0][row] = 1.0;
        for (int e = 0; e < PER_ROW; e++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            long at = e < NEAR ? row + e - NEAR / 2 : (long)(seed >> 33) % rows;
            column[row * PER_ROW + e] = (int)(at < 0 ? 0 : at >= rows ? rows - 1 : at);
            value[row * PER_ROW + e] = 1.0 / PER_ROW;
        }
    }
#pragma omp parallel
    for (long it = 0; it < iterations; it++) {
        const double *x = vector[it % 2];
        double *y = vector[1 - it % 2];
#pragma omp for schedule(static)
        for (long row = 0; row < rows; row++) {
            double sum = 0;
            for (long e = row * PER_ROW; e < (row + 1) * PER_ROW; e++)
                sum += value[e] * x[column[e]];
            y[row] = sum;
        }
    }
    long wrong = 0;
    for (long row = 0; row < rows; row++)
        wrong += vector[iterations % 2][row] < 0.999 || vector[iterations % 2][row] > 1.001;
    return finish("spmv", wrong, seed);
}
