/* Dot product whose partial sums, one for each thread, lie side by side; AFTER: a line for each. */
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 8, N = 1 << 17 };
#ifdef AFTER
enum { APART = 8 };
#else
enum { APART = 1 };
#endif

static __attribute__((noinline)) void dot(const double *a, const double *b, long n, double *sum)
{
    for (long at = 0; at < n; at++)
        *sum += a[at] * b[at];
}

int main(void)
{
    double *a = malloc(sizeof *a * N), *b = malloc(sizeof *b * N), total = 0;
    double *sums = aligned_alloc(64, sizeof *sums * THREADS * 8);
    for (int id = 0; id < THREADS; id++)
        sums[id * APART] = 0;
#pragma omp parallel for schedule(static)
    for (long at = 0; at < N; at++) {
        a[at] = at % 7;
        b[at] = at % 5;
    }
#pragma omp parallel for schedule(static, 1)
    for (long id = 0; id < THREADS; id++)
        dot(a + id * (N / THREADS), b + id * (N / THREADS), N / THREADS, sums + id * APART);
    for (int id = 0; id < THREADS; id++)
        total += sums[id * APART];
    printf("%g\n", total);
    return 0;
}
