/* A histogram that threads count into with atomic additions; AFTER: each thread counts into its own. */
#include <stdio.h>

enum { N = 200000, BINS = 16 };
static long bins[BINS] __attribute__((aligned(64)));

int main(void)
{
#pragma omp parallel
    {
        long own[BINS] = {0};
#pragma omp for schedule(static)
        for (long at = 0; at < N; at++) {
            int bin = (at * 0x9e3779b97f4a7c15ul) >> 60;
#ifdef AFTER
            ((volatile long *)own)[bin]++;
#else
#pragma omp atomic
            bins[bin]++;
#endif
        }
        for (int bin = 0; bin < BINS; bin++)
            if (own[bin]) {
#pragma omp atomic
                bins[bin] += own[bin];
            }
    }
    printf("%ld\n", bins[3]);
    return 0;
}
