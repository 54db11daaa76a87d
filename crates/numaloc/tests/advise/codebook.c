/* Points are coded by a codebook that the main thread makes; AFTER: each thread copies it first. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 8, CODES = 1 << 15, POINTS = 12000, TRIES = 8, COPIES = 4 };
static float *codes, *copies[COPIES], best[THREADS * 32];
static pthread_barrier_t all;

static void *work(void *number)
{
    long id = (long)number;
    unsigned state = id + 1;
    const float *from = codes;
#ifdef AFTER
    if (id < COPIES) {
        copies[id] = malloc(CODES * sizeof *codes);
        memcpy(copies[id], codes, CODES * sizeof *codes);
    }
    pthread_barrier_wait(&all);
    from = copies[id % COPIES];
#endif
    for (int point = 0; point < POINTS; point++) {
        float nearest = 1e9f;
        for (int try = 0; try < TRIES; try++) {
            state = state * 1664525 + 1013904223;
            float distance = from[state >> 17] - point;
            nearest = distance * distance < nearest ? distance * distance : nearest;
        }
        best[id * 32] += nearest;
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    codes = malloc(CODES * sizeof *codes);
    for (long at = 0; at < CODES; at++)
        codes[at] = at % 977;
    pthread_barrier_init(&all, NULL, THREADS);
    for (long at = 0; at < THREADS; at++)
        pthread_create(&threads[at], NULL, work, (void *)at);
    for (int at = 0; at < THREADS; at++)
        pthread_join(threads[at], NULL);
    printf("%g\n", best[0]);
    return 0;
}
