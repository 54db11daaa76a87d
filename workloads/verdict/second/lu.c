/* LU decomposition without pivoting, rows dealt to threads in turn, the matrix made by the main thread.
 *
 * Usage: lu [SIDE=600] [STEPS=24]: the first STEPS columns are eliminated. */
#include "../../workload.h"

int main(int argc, char **argv)
{
    long side = argument(argc, argv, 1, 600), steps = argument(argc, argv, 2, 24);
    double *a = pages((size_t)side * (size_t)side * sizeof(double));
    for (long y = 0; y < side; y++)
        for (long x = 0; x < side; x++)
            a[y * side + x] = y == x ? (double)side : 1.0 / (double)(1 + y + x);
    long wrong = 0;
    if (steps > side)
        steps = side;
#pragma omp parallel reduction(+ : wrong)
    for (long k = 0; k < steps; k++) {
#pragma omp for schedule(static, 1)
        for (long y = 0; y < side; y++) {
            if (y <= k)
                continue;
            double factor = a[y * side + k] / a[k * side + k];
            a[y * side + k] = factor;
            for (long x = k + 1; x < side; x++)
                a[y * side + x] -= factor * a[k * side + x];
            wrong += !(factor < 1.0 && factor > -1.0);
        }
    }
    return finish("lu", wrong, (uint64_t)(a[side * side - 1] * 1e6));
}
