/* Conjugate gradients with an irregular matrix: ENTRIES entries a row in pseudo-random columns, and a dominant diagonal.
 * Rows are dealt to threads in blocks.
 *
 * Communication: every thread reads parts of the vector p that all threads write; sums are reduced over all.
 * Pages: each thread builds its own rows; the pages of p have all threads as users.
 * Usage: cg [ROWS=40000] [ITERATIONS=5] [ENTRIES=8] */
#include "../workload.h"

int main(int argc, char **argv)
{
    long rows = argument(argc, argv, 1, 40000), iterations = argument(argc, argv, 2, 5), width = argument(argc, argv, 3, 8);
    int *column = pages((size_t)(rows * width) * sizeof *column);
    double *value = pages((size_t)(rows * width) * sizeof *value);
    size_t bytes = (size_t)rows * sizeof(double);
    double *x = pages(bytes), *r = pages(bytes), *p = pages(bytes), *q = pages(bytes);
    double rho = 0, dot = 0, next = 0, first = 0;
#pragma omp parallel
    {
#pragma omp for schedule(static)
        for (long i = 0; i < rows; i++) {
            uint64_t seed = (uint64_t)i * 0x9e3779b97f4a7c15u + 1;
            for (long e = 0; e < width; e++) {
                seed = seed * 6364136223846793005u + 1442695040888963407u;
                column[i * width + e] = (int)((seed >> 33) % (uint64_t)rows);
                value[i * width + e] = -1.0 / (double)width;
            }
            x[i] = q[i] = 0.0;
            r[i] = p[i] = 1.0 + (double)(i % 3);
        }
#pragma omp for schedule(static) reduction(+ : rho)
        for (long i = 0; i < rows; i++)
            rho += r[i] * r[i];
#pragma omp single
        first = rho;
        for (long it = 0; it < iterations; it++) {
#pragma omp for schedule(static) reduction(+ : dot)
            for (long i = 0; i < rows; i++) {
                double sum = 4.0 * p[i];
                for (long e = 0; e < width; e++)
                    sum += value[i * width + e] * p[column[i * width + e]];
                q[i] = sum;
                dot += sum * p[i];
            }
            double alpha = rho / dot;
#pragma omp for schedule(static) reduction(+ : next)
            for (long i = 0; i < rows; i++) {
                x[i] += alpha * p[i];
                r[i] -= alpha * q[i];
                next += r[i] * r[i];
            }
            double beta = next / rho;
#pragma omp for schedule(static)
            for (long i = 0; i < rows; i++)
                p[i] = r[i] + beta * p[i];
#pragma omp single
            rho = next, dot = 0, next = 0;
        }
    }
    int wrong = !(rho < first);
    printf("cg: %d threads, residual %.3e of %.3e, %s\n", omp_get_max_threads(), rho, first, wrong ? "wrong" : "ok");
    return wrong;
}
