/* Breadth-first search in a random graph whose edges the main thread writes; AFTER: the pages of the graph are dealt over
   the nodes. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { N = 1 << 16, DEGREE = 8, INTERLEAVE = 3 };

static void *room(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
#ifdef AFTER
    unsigned long nodes = 1;
    syscall(SYS_mbind, at, bytes, INTERLEAVE, &nodes, 64ul, 0u);
#endif
    return at;
}

int main(void)
{
    int *edges = room(sizeof *edges * N * DEGREE);
    unsigned long state = 1;
    for (long at = 0; at < (long)N * DEGREE; at++) {
        state = state * 6364136223846793005ul + 1442695040888963407ul;
        edges[at] = (state >> 33) % N;
    }
    int *level = malloc(sizeof *level * N), *now = malloc(sizeof *now * N), *next = malloc(sizeof *next * N);
#pragma omp parallel for schedule(static)
    for (long vertex = 0; vertex < N; vertex++)
        level[vertex] = -1;
    long count = 1;
    now[0] = 0;
    level[0] = 0;
    for (int depth = 1; count; depth++) {
        long found = 0;
#pragma omp parallel
        {
            int own[4096];
            int kept = 0;
#pragma omp for schedule(static)
            for (long at = 0; at < count; at++)
                for (int edge = 0; edge < DEGREE; edge++) {
                    int vertex = edges[(long)now[at] * DEGREE + edge], unseen = -1;
                    if (level[vertex] != -1 || !__atomic_compare_exchange_n(&level[vertex], &unseen, depth, 0,
                                                                            __ATOMIC_RELAXED, __ATOMIC_RELAXED))
                        continue;
                    own[kept++] = vertex;
                    if (kept == 4096) {
                        long from = __atomic_fetch_add(&found, kept, __ATOMIC_RELAXED);
                        for (int i = 0; i < kept; i++)
                            next[from + i] = own[i];
                        kept = 0;
                    }
                }
            long from = __atomic_fetch_add(&found, kept, __ATOMIC_RELAXED);
            for (int i = 0; i < kept; i++)
                next[from + i] = own[i];
        }
        int *other = now;
        now = next;
        next = other;
        count = found;
    }
    long reached = 0;
    for (long vertex = 0; vertex < N; vertex++)
        reached += level[vertex] >= 0;
    printf("%ld\n", reached);
    return 0;
}
