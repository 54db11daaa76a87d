/* What the MPI workloads share: arguments, and one line of result at the end. Each program checks what
 * it receives; a wrong value ends it with status 1. */
#ifndef NUMALOC_MPI_WORKLOAD_H
#define NUMALOC_MPI_WORKLOAD_H

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, ranks;

static inline void begin(int *argc, char ***argv)
{
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
}

/* n-th argument as a positive number, or the default. */
static inline long argument(int argc, char **argv, int n, long fallback)
{
    if (argc <= n)
        return fallback;
    char *end;
    long value = strtol(argv[n], &end, 10);
    if (*end || value < 1) {
        if (rank == 0)
            fprintf(stderr, "%s: argument %d is \"%s\", expected a number of at least 1\n", argv[0], n, argv[n]);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    return value;
}

static inline double *buffer(long count)
{
    double *memory = malloc((size_t)count * sizeof *memory);
    if (!memory)
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (long i = 0; i < count; i++)
        memory[i] = rank;
    return memory;
}

/* Every rank says for itself whether it saw a wrong value: no collective, so that the pattern above is
 * the program's whole communication. */
static inline int finish(const char *name, int wrong)
{
    if (wrong)
        fprintf(stderr, "%s: rank %d received a wrong value\n", name, rank);
    if (rank == 0)
        printf("%s: %d ranks, %s\n", name, ranks, wrong ? "wrong" : "ok");
    MPI_Finalize();
    return wrong != 0;
}

#endif
