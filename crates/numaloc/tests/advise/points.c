/* k-means over points that the main thread reads in; AFTER: each thread reads those that it will assign. */
#include <stdio.h>
#include <stdlib.h>

enum { N = 100000, DIMENSIONS = 4, K = 8, ROUNDS = 5 };

static double coordinate(long point, int dimension)
{
    unsigned long mixed = (point * 4 + dimension + 1) * 0x9e3779b97f4a7c15ul;
    return (mixed >> 11) * 0x1p-53;
}

int main(void)
{
    double(*points)[DIMENSIONS] = malloc(N * sizeof *points);
    int *of = malloc(N * sizeof *of);
    double centres[K][DIMENSIONS];
#ifdef AFTER
#pragma omp parallel for schedule(static)
#endif
    for (long point = 0; point < N; point++) {
        for (int d = 0; d < DIMENSIONS; d++)
            points[point][d] = coordinate(point, d);
        of[point] = 0;
    }
    for (int k = 0; k < K; k++)
        for (int d = 0; d < DIMENSIONS; d++)
            centres[k][d] = points[k * (N / K)][d];
    for (int round = 0; round < ROUNDS; round++) {
        double sums[K][DIMENSIONS] = {0};
        long counts[K] = {0};
#pragma omp parallel for schedule(static) reduction(+ : sums, counts)
        for (long point = 0; point < N; point++) {
            double least = 1e300;
            int nearest = 0;
            for (int k = 0; k < K; k++) {
                double far = 0;
                for (int d = 0; d < DIMENSIONS; d++) {
                    double by = points[point][d] - centres[k][d];
                    far += by * by;
                }
                if (far < least) {
                    least = far;
                    nearest = k;
                }
            }
            of[point] = nearest;
            counts[nearest]++;
            for (int d = 0; d < DIMENSIONS; d++)
                sums[nearest][d] += points[point][d];
        }
        for (int k = 0; k < K; k++)
            for (int d = 0; d < DIMENSIONS; d++)
                centres[k][d] = counts[k] ? sums[k][d] / counts[k] : centres[k][d];
    }
    printf("%g %d\n", centres[0][0], of[N - 1]);
    return 0;
}
