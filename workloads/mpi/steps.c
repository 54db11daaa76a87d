/* Steps of computation and exchange, whose time depends on where ranks are: each rank computes for MICROSECONDS, then sends COUNT
 * numbers to each of its partners and receives as many. Rank 0 prints the seconds between two barriers: `seconds S`.
 *
 * PATTERN ring: to the next rank; far: to the rank half of all further on; groups: to the other three of ranks r, r + 2, r + 4,
 * r + 6 (8 ranks); all: to every other rank.
 * Point-to-point: STEPS messages and STEPS * COUNT * 8 bytes to each partner. Computation is a sleep, so that it takes as long
 * where ranks share a processor.
 * Usage: steps [STEPS=20] [COUNT=20000] [MICROSECONDS=5000] [PATTERN=ring]
 */
#define _POSIX_C_SOURCE 199309L
#include <string.h>
#include <time.h>
#include "workload.h"

#define MOST 64

static int to[MOST], from[MOST], partners;

static void partner(int distance)
{
    if (partners < MOST) {
        to[partners] = (rank + distance) % ranks;
        from[partners++] = (rank + ranks - distance) % ranks;
    }
}

static void choose(const char *pattern)
{
    if (strcmp(pattern, "ring") == 0)
        partner(1);
    else if (strcmp(pattern, "far") == 0)
        partner(ranks / 2);
    else if (strcmp(pattern, "groups") == 0)
        for (int distance = 2; distance < ranks; distance += 2)
            partner(distance);
    else if (strcmp(pattern, "all") == 0)
        for (int distance = 1; distance < ranks; distance++)
            partner(distance);
    else
        MPI_Abort(MPI_COMM_WORLD, 2);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    long steps = argument(argc, argv, 1, 20), count = argument(argc, argv, 2, 20000);
    long microseconds = argument(argc, argv, 3, 5000);
    choose(argc > 4 ? argv[4] : "ring");
    double *out = buffer(count), *in = buffer(count * MOST);
    struct timespec computing = {microseconds / 1000000, microseconds % 1000000 * 1000};
    int wrong = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (long step = 0; step < steps; step++) {
        MPI_Request requests[2 * MOST];
        nanosleep(&computing, NULL);
        for (int p = 0; p < partners; p++) {
            MPI_Irecv(in + p * count, (int)count, MPI_DOUBLE, from[p], 0, MPI_COMM_WORLD, &requests[p]);
            MPI_Isend(out, (int)count, MPI_DOUBLE, to[p], 0, MPI_COMM_WORLD, &requests[partners + p]);
        }
        MPI_Waitall(2 * partners, requests, MPI_STATUSES_IGNORE);
        for (int p = 0; p < partners; p++)
            wrong |= in[p * count] != from[p];
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("seconds %.6f\n", MPI_Wtime() - start);
    return finish("steps", wrong);
}
