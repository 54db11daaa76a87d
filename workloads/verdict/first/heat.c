/* Heat along a rod: neighbouring cells in blocks, and every thread initialises its own block.
 *
 * Pages: where first touch puts them they are right, as long as the thread stays.
 * Usage: heat [CELLS=400000] [ITERATIONS=12] */
#include "../../workload.h"

int main(int argc, char **argv)
{
    long cells = argument(argc, argv, 1, 400000), iterations = argument(argc, argv, 2, 12);
    double *rod[2] = {pages((size_t)cells * sizeof(double)), pages((size_t)cells * sizeof(double))};
    double sum = 0;
#pragma omp parallel reduction(+ : sum)
    {
#pragma omp for schedule(static)
        for (long i = 0; i < cells; i++)
            rod[0][i] = rod[1][i] = i == 0 ? 1.0 : 0.0;
        for (long it = 0; it < iterations; it++) {
            const double *from = rod[it % 2];
            double *to = rod[1 - it % 2];
#pragma omp for schedule(static)
            for (long i = 1; i < cells - 1; i++)
                to[i] = 0.25 * from[i - 1] + 0.5 * from[i] + 0.25 * from[i + 1];
        }
#pragma omp for schedule(static)
        for (long i = 0; i < cells; i++)
            sum += rod[iterations % 2][i];
    }
    return finish("heat", !(sum >= 1.0 && sum < 2.0 + (double)iterations), (uint64_t)(sum * 1e6));
}
