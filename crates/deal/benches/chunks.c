// Nanoseconds per chunk of loops with a dynamic schedule whose iterations do nothing: min over the repetitions.
//
//     chunks CHUNKS REPETITIONS    prints nanoseconds of a chunk (wall time x 1, all threads together)
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1e9 + at.tv_nsec;
}

int main(int argc, char **argv)
{
    long chunks = argc > 1 ? atol(argv[1]) : 1 << 20;
    int repetitions = argc > 2 ? atoi(argv[2]) : 5;
    double best = 1e300;
    for (int repetition = 0; repetition < repetitions; repetition++) {
        double begun = now();
#pragma omp parallel for schedule(dynamic)
        for (long i = 0; i < chunks; i++)
            __asm__ volatile("" : : "r"(i));
        double took = (now() - begun) / chunks;
        if (took < best)
            best = took;
    }
    printf("%.2f\n", best);
    return 0;
}
