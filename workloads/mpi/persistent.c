/* Persistent collectives (MPI 4): an all-to-all of 100 ints, prepared once and started 5 times.
 *
 * Collective, every rank to every other: 5 messages, 5 * 400 = 2000 bytes. A library without them is reported.
 */
#include "workload.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int wrong = 0;
#if MPI_VERSION >= 4
    int *out = calloc((size_t)ranks * 200, sizeof *out), *in = out + ranks * 100;
    MPI_Request request;
    MPI_Alltoall_init(out, 100, MPI_INT, in, 100, MPI_INT, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    for (int k = 1; k <= 5; k++) {
        for (int i = 0; i < ranks * 100; i++)
            out[i] = rank + k;
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int r = 0; r < ranks; r++)
            wrong |= in[r * 100 + 99] != r + k;
    }
    MPI_Request_free(&request);
    free(out);
#endif
    return finish("persistent", wrong);
}
