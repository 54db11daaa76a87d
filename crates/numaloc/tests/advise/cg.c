/* Conjugate gradients on a sparse matrix that the main thread assembles; AFTER: each thread assembles the rows that it
   multiplies. */
#include <stdio.h>
#include <stdlib.h>

enum { N = 12000, PER_ROW = 11, ROUNDS = 6 };

static unsigned long mixed(unsigned long value)
{
    value = (value ^ (value >> 31)) * 0x9e3779b97f4a7c15ul;
    return value ^ (value >> 29);
}

int main(void)
{
    double *a = malloc(sizeof *a * N * PER_ROW), *x = malloc(sizeof *x * N), *r = malloc(sizeof *r * N);
    double *p = malloc(sizeof *p * N), *q = malloc(sizeof *q * N);
    int *column = malloc(sizeof *column * N * PER_ROW);
    double rho = 0;
#ifdef AFTER
#pragma omp parallel for schedule(static) reduction(+ : rho)
#endif
    for (long row = 0; row < N; row++) {
        for (int at = 0; at < PER_ROW; at++) {
            column[row * PER_ROW + at] = at == 0 ? row : (long)(mixed(row * PER_ROW + at) % N);
            a[row * PER_ROW + at] = at == 0 ? 12 : 1.0 / (at + 1);
        }
        x[row] = 0;
        q[row] = 0;
        r[row] = p[row] = 1;
        rho += 1;
    }
    for (int round = 0; round < ROUNDS; round++) {
        double pq = 0, next = 0;
#pragma omp parallel for schedule(static) reduction(+ : pq)
        for (long row = 0; row < N; row++) {
            double sum = 0;
            for (int at = 0; at < PER_ROW; at++)
                sum += a[row * PER_ROW + at] * p[column[row * PER_ROW + at]];
            q[row] = sum;
            pq += sum * p[row];
        }
        double alpha = rho / pq;
#pragma omp parallel for schedule(static) reduction(+ : next)
        for (long row = 0; row < N; row++) {
            x[row] += alpha * p[row];
            r[row] -= alpha * q[row];
            next += r[row] * r[row];
        }
        double beta = next / rho;
        rho = next;
#pragma omp parallel for schedule(static)
        for (long row = 0; row < N; row++)
            p[row] = r[row] + beta * p[row];
    }
    printf("%g %g\n", rho, x[N / 2]);
    return 0;
}
