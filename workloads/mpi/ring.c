/* Ring: each rank sends COUNT doubles to the next, ITERATIONS times, with MPI_Sendrecv.
 *
 * Point-to-point, rank r to (r+1) mod n: ITERATIONS messages, ITERATIONS * COUNT * 8 bytes. Nothing else.
 * Usage: ring [COUNT=1000] [ITERATIONS=50]
 */
#include "workload.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    long count = argument(argc, argv, 1, 1000), iterations = argument(argc, argv, 2, 50);
    double *out = buffer(count), *in = buffer(count);
    int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks, wrong = 0;
    for (long it = 0; it < iterations; it++) {
        MPI_Sendrecv(out, (int)count, MPI_DOUBLE, next, 0, in, (int)count, MPI_DOUBLE, previous, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        wrong |= in[count - 1] != previous;
    }
    return finish("ring", wrong);
}
