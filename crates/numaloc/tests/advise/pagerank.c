/* PageRank by pulling along the edges that come in; ranks and edges are initialised by the main thread, AFTER: by the
   threads of the vertices. */
#include <stdio.h>
#include <stdlib.h>

enum { VERTICES = 40000, DEGREE = 8, ROUNDS = 3 };

int main(void)
{
    int *sources = malloc(sizeof *sources * VERTICES * DEGREE);
    double *ranks = malloc(sizeof *ranks * VERTICES), *next = malloc(sizeof *next * VERTICES);
#ifdef AFTER
#pragma omp parallel for schedule(static)
#endif
    for (long vertex = 0; vertex < VERTICES; vertex++) {
        unsigned long state = vertex * 2654435761ul + 12345;
        for (int edge = 0; edge < DEGREE; edge++) {
            state = state * 6364136223846793005ul + 1442695040888963407ul;
            sources[vertex * DEGREE + edge] = (state >> 33) % VERTICES;
        }
        ranks[vertex] = 1.0 / VERTICES;
        next[vertex] = 0;
    }
    for (int round = 0; round < ROUNDS; round++) {
#pragma omp parallel for schedule(static)
        for (long vertex = 0; vertex < VERTICES; vertex++) {
            double sum = 0;
            for (int edge = 0; edge < DEGREE; edge++)
                sum += ranks[sources[vertex * DEGREE + edge]];
            next[vertex] = 0.15 / VERTICES + 0.85 / DEGREE * sum;
        }
        double *other = ranks;
        ranks = next, next = other;
    }
    printf("%g\n", ranks[7]);
    return 0;
}
