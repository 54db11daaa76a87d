/* Product of two square matrices by rows; the main thread fills both factors, the threads the product.
 *
 * Usage: multiply [SIDE=420] [ROWS=64]: the first ROWS rows of the product are computed, eight by each of 8 threads. */
#include "../../workload.h"

int main(int argc, char **argv)
{
    long side = argument(argc, argv, 1, 420), rows = argument(argc, argv, 2, 64);
    size_t bytes = (size_t)side * (size_t)side * sizeof(double);
    double *a = pages(bytes), *b = pages(bytes), *c = pages(bytes);
    if (rows > side)
        rows = side;
    for (long i = 0; i < side * side; i++) {
        a[i] = (double)(i % 5);
        b[i] = i / side == i % side ? 2.0 : 0.0;
    }
    long wrong = 0;
#pragma omp parallel for schedule(static) reduction(+ : wrong)
    for (long y = 0; y < rows; y++) {
        for (long x = 0; x < side; x++)
            c[y * side + x] = 0;
        for (long k = 0; k < side; k++)
            for (long x = 0; x < side; x++)
                c[y * side + x] += a[y * side + k] * b[k * side + x];
        for (long x = 0; x < side; x++)
            wrong += c[y * side + x] != 2.0 * a[y * side + x];
    }
    return finish("multiply", wrong, (uint64_t)c[rows * side - 1]);
}
