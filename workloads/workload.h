/* What every OpenMP workload shares: argument parsing, aligned memory, and the exchange step that most
 * of them are made of. Each program prints one line with a checksum and ends with status 1 if a value
 * it read was not the one its partner wrote. */
#ifndef NUMALOC_WORKLOAD_H
#define NUMALOC_WORKLOAD_H

#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* n-th argument as a positive number, or the default. */
static inline long argument(int argc, char **argv, int n, long fallback)
{
    if (argc <= n)
        return fallback;
    char *end;
    long value = strtol(argv[n], &end, 10);
    if (*end || value < 1) {
        fprintf(stderr, "%s: argument %d is \"%s\", expected a number of at least 1\n", argv[0], n, argv[n]);
        exit(2);
    }
    return value;
}

/* Page-aligned memory that nobody has touched yet. */
static inline void *pages(size_t bytes)
{
    void *memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (!memory) {
        perror("aligned_alloc");
        exit(1);
    }
    return memory;
}

/* What thread `t` writes to its cell `i` in iteration `it`; readers check it. */
static inline uint64_t value_of(int t, long it, long i)
{
    return (uint64_t)t * 1000003u + (uint64_t)it * 7919u + (uint64_t)i;
}

/* One thread's buffer of `cells` 8-byte cells, on pages of its own. */
struct buffers {
    uint64_t **cell; /* by thread; allocated and first touched by that thread */
    long cells;
};

static inline void write_own(struct buffers *b, int t, long it)
{
    uint64_t *own = b->cell[t];
    for (long i = 0; i < b->cells; i++)
        own[i] = value_of(t, it, i);
}

/* Reads another thread's buffer; returns how many cells were wrong and adds up the rest. */
static inline long read_other(struct buffers *b, int other, long it, uint64_t *sum)
{
    const uint64_t *theirs = b->cell[other];
    long wrong = 0;
    for (long i = 0; i < b->cells; i++) {
        wrong += theirs[i] != value_of(other, it, i);
        *sum += theirs[i];
    }
    return wrong;
}

static inline struct buffers make_buffers(long cells)
{
    struct buffers b = {pages((size_t)omp_get_max_threads() * sizeof(uint64_t *)), cells};
    return b;
}

static inline int finish(const char *name, long wrong, uint64_t sum)
{
    printf("%s: %d threads, checksum %016llx, %ld wrong\n", name, omp_get_max_threads(),
           (unsigned long long)sum, wrong);
    return wrong != 0;
}

#endif
