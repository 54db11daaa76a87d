/* Pairs that change partners half-way: first rank r talks to r^1, then to its mirror n-1-r. The number of
 * ranks must be even.
 *
 * Point-to-point, rank r to r^1 in the first half, r to n-1-r in the second: ITERATIONS messages and
 * ITERATIONS * COUNT * 8 bytes each, both directions. A mapping for the whole run must please both.
 * PAUSE milliseconds of silence separate the halves.
 * Usage: pairs [COUNT=1000] [ITERATIONS=50] [PAUSE=20]
 */
#define _POSIX_C_SOURCE 199309L
#include <time.h>
#include "workload.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    long count = argument(argc, argv, 1, 1000), iterations = argument(argc, argv, 2, 50);
    long pause = argument(argc, argv, 3, 20);
    int wrong = 0;
    if (ranks % 2) {
        fprintf(stderr, "pairs: %d ranks, expected an even number\n", ranks);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    double *out = buffer(count), *in = buffer(count);
    for (int half = 0; half < 2; half++) {
        int partner = half == 0 ? rank ^ 1 : ranks - 1 - rank;
        for (long it = 0; it < iterations; it++) {
            MPI_Sendrecv(out, (int)count, MPI_DOUBLE, partner, half, in, (int)count, MPI_DOUBLE, partner, half,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            wrong |= in[0] != partner;
        }
        struct timespec silence = {pause / 1000, pause % 1000 * 1000000};
        if (half == 0)
            nanosleep(&silence, NULL);
    }
    return finish("pairs", wrong);
}
