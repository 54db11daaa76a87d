/* Repeated transpose of a square matrix whose rows are dealt to threads in blocks.
 *
 * Communication: all to all, equal amounts between every two threads: no mapping is better than
 * another, and a tool must say so.
 * Pages: each thread first touches its own rows of both matrices; every page is read by all threads.
 * Usage: transpose [SIDE=512] [ITERATIONS=10]
 */
#include "workload.h"

int main(int argc, char **argv)
{
    long side = argument(argc, argv, 1, 512), iterations = argument(argc, argv, 2, 10);
    size_t bytes = (size_t)side * (size_t)side * sizeof(uint64_t);
    uint64_t *matrix[2] = {pages(bytes), pages(bytes)};
    long wrong = 0;
    uint64_t sum = 0;
#pragma omp parallel reduction(+ : wrong, sum)
    {
#pragma omp for schedule(static)
        for (long y = 0; y < side; y++)
            for (long x = 0; x < side; x++) {
                matrix[0][y * side + x] = (uint64_t)(y * side + x);
                matrix[1][y * side + x] = 0;
            }
        for (long it = 0; it < iterations; it++) {
            const uint64_t *from = matrix[it % 2];
            uint64_t *to = matrix[1 - it % 2];
#pragma omp for schedule(static)
            for (long y = 0; y < side; y++)
                for (long x = 0; x < side; x++)
                    to[y * side + x] = from[x * side + y];
        }
#pragma omp for schedule(static)
        for (long y = 0; y < side; y++)
            for (long x = 0; x < side; x++) {
                uint64_t expected = (uint64_t)(iterations % 2 ? x * side + y : y * side + x);
                wrong += matrix[iterations % 2][y * side + x] != expected;
                sum += expected * (uint64_t)(y + 1);
            }
    }
    return finish("transpose", wrong, sum);
}
