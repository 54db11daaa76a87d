/* Matrix transpose as an FFT does it: all-to-all of COUNT doubles per pair, ITERATIONS times.
 *
 * Collective, every ordered pair of different ranks: ITERATIONS * COUNT * 8 bytes. With blocks of 4000
 * bytes and more Open MPI sends each block as one message (pairwise exchange); smaller blocks may be
 * bundled through other ranks (Bruck), so keep COUNT at 500 or more for exact counts.
 * Usage: transpose [COUNT=1000] [ITERATIONS=10]
 */
#include "workload.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    long count = argument(argc, argv, 1, 1000), iterations = argument(argc, argv, 2, 10);
    double *out = buffer(count * ranks), *in = buffer(count * ranks);
    int wrong = 0;
    for (long it = 0; it < iterations; it++) {
        MPI_Alltoall(out, (int)count, MPI_DOUBLE, in, (int)count, MPI_DOUBLE, MPI_COMM_WORLD);
        for (int from = 0; from < ranks; from++)
            wrong |= in[from * count] != from;
    }
    return finish("transpose", wrong);
}
