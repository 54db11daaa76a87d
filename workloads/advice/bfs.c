// Breadth-first search over a random graph, level by level, with a shared frontier. Threads write the edges of
// their own vertices first. Arguments: THREADS [VERTICES].
#include <stdio.h>
#include <stdlib.h>
#define DEGREE 8
int main(int argc, char **argv) {
    int threads = atoi(argv[1]);
    long n = argc > 2 ? atol(argv[2]) : 30000;
    unsigned *edges = malloc(n * DEGREE * sizeof *edges), *now = malloc(n * sizeof *now), *next = malloc(n * sizeof *next);
    int *level = malloc(n * sizeof *level);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long v = 0; v < n; v++) {
        unsigned long seed = v * 2654435761u + 12345;
        level[v] = -1;
        for (int e = 0; e < DEGREE; e++) {
            seed = seed * 6364136223846793005ul + 1442695040888963407ul;
            edges[v * DEGREE + e] = (seed >> 33) % n;
        }
    }
    long found = 1, reached = 1;
    now[0] = 0;
    level[0] = 0;
    for (int depth = 1; found > 0; depth++) {
        long count = 0;
#pragma omp parallel for num_threads(threads) schedule(static)
        for (long i = 0; i < found; i++)
            for (int e = 0; e < DEGREE; e++) {
                unsigned to = edges[now[i] * (long)DEGREE + e];
                int none = -1;
                if (level[to] == -1 && __atomic_compare_exchange_n(&level[to], &none, depth, 0, 5, 5))
                    next[__atomic_fetch_add(&count, 1, 5)] = to;
            }
        unsigned *other = now;
        now = next;
        next = other;
        found = count;
        reached += count;
    }
    printf("%ld\n", reached);
}
