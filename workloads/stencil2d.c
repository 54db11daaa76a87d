/* 5-point Jacobi stencil on a square grid, rows dealt to threads in blocks, and the whole grid
 * initialised by the main thread.
 *
 * Communication: thread t exchanges its border rows with t-1 and t+1.
 * Pages: the worst case of first touch: every page of both grids lands on the main thread's node,
 * though each is later used by one thread (border pages by two).
 * Usage: stencil2d [SIDE=512] [ITERATIONS=20]
 */
#include "workload.h"

int main(int argc, char **argv)
{
    long side = argument(argc, argv, 1, 512), iterations = argument(argc, argv, 2, 20);
    double *grid[2];
    for (int g = 0; g < 2; g++) {
        grid[g] = pages((size_t)side * (size_t)side * sizeof(double));
        for (long i = 0; i < side * side; i++)
            grid[g][i] = (i / side == 0) ? 1.0 : 0.0;
    }
#pragma omp parallel
    for (long it = 0; it < iterations; it++) {
        const double *from = grid[it % 2];
        double *to = grid[1 - it % 2];
#pragma omp for schedule(static)
        for (long y = 1; y < side - 1; y++)
            for (long x = 1; x < side - 1; x++) {
                long at = y * side + x;
                to[at] = 0.25 * (from[at - 1] + from[at + 1] + from[at - side] + from[at + side]);
            }
    }
    double sum = 0;
    for (long i = 0; i < side * side; i++)
        sum += grid[iterations % 2][i];
    /* Heat only flows in from the top row, so the sum lies between that row and a full grid. */
    int wrong = !(sum >= (double)side && sum <= (double)(side * side));
    printf("stencil2d: %d threads, sum %.6f, %s\n", omp_get_max_threads(), sum, wrong ? "wrong" : "ok");
    return wrong;
}
