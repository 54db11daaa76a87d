/* Clustering of a stream of points: the main thread reads chunks of points into one buffer, all threads assign their
 * share to the nearest centre and add up their own sums, and new centres follow from the sums of all.
 *
 * Communication: every thread reads the points that the main thread wrote and the centres that one thread made from the
 * sums of all.
 * Pages: buffer and centres are the main thread's; sums are each thread's own.
 * Usage: stream_cluster [POINTS=40000] [CHUNKS=2] [CENTRES=16]: points in each chunk, of 16 numbers each */
#include <string.h>
#include "../workload.h"

enum { DIMENSIONS = 16, ROUNDS = 3 };

int main(int argc, char **argv)
{
    long points = argument(argc, argv, 1, 40000), chunks = argument(argc, argv, 2, 2), centres = argument(argc, argv, 3, 16);
    int n = omp_get_max_threads();
    float *point = pages((size_t)points * DIMENSIONS * sizeof *point), *centre = pages((size_t)centres * DIMENSIONS * sizeof *centre);
    float **sums = pages((size_t)n * sizeof *sums);
    long assigned = 0;
    uint64_t seed = 5;
#pragma omp parallel reduction(+ : assigned)
    {
        int t = omp_get_thread_num();
        size_t bytes = (size_t)centres * (DIMENSIONS + 1) * sizeof(float);
        sums[t] = pages(bytes);
        for (long chunk = 0; chunk < chunks; chunk++) {
#pragma omp master
            {
                for (long i = 0; i < points * DIMENSIONS; i++) {
                    seed = seed * 6364136223846793005u + 1442695040888963407u;
                    point[i] = (float)(seed >> 40);
                }
                if (chunk == 0)
                    memcpy(centre, point, (size_t)centres * DIMENSIONS * sizeof *centre);
            }
#pragma omp barrier
            for (int round = 0; round < ROUNDS; round++) {
                memset(sums[t], 0, bytes);
#pragma omp for schedule(static)
                for (long i = 0; i < points; i++) {
                    const float *p = &point[i * DIMENSIONS];
                    float least = 1e30f;
                    long nearest = 0;
                    for (long c = 0; c < centres; c++) {
                        float distance = 0;
                        for (int d = 0; d < DIMENSIONS; d += 4)
                            distance += (p[d] - centre[c * DIMENSIONS + d]) * (p[d] - centre[c * DIMENSIONS + d]);
                        if (distance < least)
                            least = distance, nearest = c;
                    }
                    float *sum = &sums[t][nearest * (DIMENSIONS + 1)];
                    for (int d = 0; d < DIMENSIONS; d++)
                        sum[d] += p[d];
                    sum[DIMENSIONS] += 1;
                    assigned++;
                }
#pragma omp single
                for (long c = 0; c < centres; c++) {
                    float count = 0, sum[DIMENSIONS] = {0};
                    for (int other = 0; other < n; other++) {
                        const float *theirs = &sums[other][c * (DIMENSIONS + 1)];
                        for (int d = 0; d < DIMENSIONS; d++)
                            sum[d] += theirs[d];
                        count += theirs[DIMENSIONS];
                    }
                    for (int d = 0; d < DIMENSIONS && count > 0; d++)
                        centre[c * DIMENSIONS + d] = sum[d] / count;
                }
            }
        }
    }
    return finish("stream_cluster", assigned != points * chunks * ROUNDS, (uint64_t)assigned);
}
