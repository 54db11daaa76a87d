/* V-cycles of a multigrid solver for Poisson's equation in a square: smoothing, residual, restriction to grids of half
 * the side, and prolongation back. Rows are dealt to threads in blocks on every level.
 *
 * Communication: neighbours exchange border rows on each level; on coarse levels few rows remain, and threads read what
 * several others wrote.
 * Pages: each thread initialises its own rows; those of coarse grids share pages.
 * Usage: multigrid [SIDE=512] [CYCLES=2] (SIDE: a multiple of 32) */
#include "../workload.h"

enum { LEVELS = 5 };

static double *u[LEVELS], *f[LEVELS], *r[LEVELS];

static void smooth(int level, long n, int sweeps)
{
    for (int sweep = 0; sweep < 2 * sweeps; sweep++) {
#pragma omp for schedule(static)
        for (long y = 1; y < n - 1; y++)
            for (long x = 1 + (y + sweep) % 2; x < n - 1; x += 2) {
                long at = y * n + x;
                u[level][at] = 0.25 * (u[level][at - 1] + u[level][at + 1] + u[level][at - n] + u[level][at + n] + f[level][at]);
            }
    }
}

static void residual(int level, long n)
{
#pragma omp for schedule(static)
    for (long y = 1; y < n - 1; y++)
        for (long x = 1; x < n - 1; x++) {
            long at = y * n + x;
            r[level][at] = f[level][at] - 4.0 * u[level][at] + u[level][at - 1] + u[level][at + 1] + u[level][at - n] +
                           u[level][at + n];
        }
}

int main(int argc, char **argv)
{
    long side = argument(argc, argv, 1, 512), cycles = argument(argc, argv, 2, 2);
    for (int level = 0; level < LEVELS; level++) {
        size_t bytes = (size_t)(side >> level) * (size_t)(side >> level) * sizeof(double);
        u[level] = pages(bytes), f[level] = pages(bytes), r[level] = pages(bytes);
    }
#pragma omp parallel
    {
        for (int level = 0; level < LEVELS; level++) {
            long n = side >> level;
#pragma omp for schedule(static)
            for (long y = 0; y < n; y++)
                for (long x = 0; x < n; x++) {
                    u[level][y * n + x] = r[level][y * n + x] = 0.0;
                    f[level][y * n + x] = level == 0 && x == n / 2 && y == n / 3 ? 1.0 : 0.0;
                }
        }
        for (long cycle = 0; cycle < cycles; cycle++) {
            for (int level = 0; level + 1 < LEVELS; level++) {
                long n = side >> level, half = n / 2;
                smooth(level, n, 1);
                residual(level, n);
#pragma omp for schedule(static)
                for (long y = 0; y < half; y++)
                    for (long x = 0; x < half; x++) {
                        long at = 2 * y * n + 2 * x;
                        int inside = y > 0 && x > 0 && y < half - 1 && x < half - 1;
                        f[level + 1][y * half + x] =
                            inside ? r[level][at] + r[level][at + 1] + r[level][at + n] + r[level][at + n + 1] : 0.0;
                        u[level + 1][y * half + x] = 0.0;
                    }
            }
            smooth(LEVELS - 1, side >> (LEVELS - 1), 8);
            for (int level = LEVELS - 2; level >= 0; level--) {
                long n = side >> level, half = n / 2;
#pragma omp for schedule(static)
                for (long y = 1; y < n - 1; y++)
                    for (long x = 1; x < n - 1; x++)
                        u[level][y * n + x] += u[level + 1][y / 2 * half + x / 2];
                smooth(level, n, 1);
            }
        }
    }
    double sum = 0;
    for (long i = 0; i < side * side; i++)
        sum += u[0][i];
    int wrong = !(sum > 0.0 && sum < 1e9);
    printf("multigrid: %d threads, sum %.6f, %s\n", omp_get_max_threads(), sum, wrong ? "wrong" : "ok");
    return wrong;
}
