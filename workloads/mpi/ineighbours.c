/* Every non-blocking neighbourhood collective on a periodic ring of ranks (a Cartesian grid of one dimension). For three
 * ranks or more, so that the two neighbours differ.
 *
 * Collective, per iteration: to the rank before 5 messages of COUNT doubles; to the next rank 3 of COUNT doubles, one of
 * 2 COUNT doubles and one of COUNT floats.
 * Usage: ineighbours [COUNT=100] [ITERATIONS=5]
 */
#include "workload.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int count = (int)argument(argc, argv, 1, 100), iterations = (int)argument(argc, argv, 2, 5), wrong = 0;
    int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    MPI_Comm ring;
    MPI_Cart_create(MPI_COMM_WORLD, 1, &ranks, &(int){1}, 0, &ring);
    /* Blocks, of the neighbour before and of the next: what is sent there, and what comes from there. */
    const int out_counts[2] = {count, 2 * count}, in_counts[2] = {2 * count, count};
    const int out_at[2] = {0, count}, in_at[2] = {0, 2 * count}, equal_counts[2] = {count, count}, equal_at[2] = {0, count};
    const MPI_Aint far[2] = {0, 8 * (MPI_Aint)count};
    const MPI_Datatype out_types[2] = {MPI_DOUBLE, MPI_FLOAT}, in_types[2] = {MPI_FLOAT, MPI_DOUBLE};
    double *out = buffer(3L * count), *in = buffer(3L * count);
    float *floats = (float *)(out + count), *read = (float *)in;
    for (int it = 0; it < iterations; it++) {
        MPI_Request request;
        for (int i = 0; i < 3 * count; i++)
            out[i] = rank;
        MPI_Ineighbor_allgather(out, count, MPI_DOUBLE, in, count, MPI_DOUBLE, ring, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        wrong |= in[0] != previous || in[2 * count - 1] != next;
        MPI_Ineighbor_allgatherv(out, count, MPI_DOUBLE, in, equal_counts, equal_at, MPI_DOUBLE, ring, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        wrong |= in[0] != previous || in[2 * count - 1] != next;
        MPI_Ineighbor_alltoall(out, count, MPI_DOUBLE, in, count, MPI_DOUBLE, ring, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        wrong |= in[0] != previous || in[2 * count - 1] != next;
        MPI_Ineighbor_alltoallv(out, out_counts, out_at, MPI_DOUBLE, in, in_counts, in_at, MPI_DOUBLE, ring, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        wrong |= in[2 * count - 1] != previous || in[3 * count - 1] != next;
        for (int i = 0; i < count; i++)
            floats[i] = (float)rank;
        MPI_Ineighbor_alltoallw(out, equal_counts, far, out_types, in, equal_counts, far, in_types, ring, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        wrong |= read[count - 1] != (float)previous || in[2 * count - 1] != next;
    }
    MPI_Comm_free(&ring);
    free(out), free(in);
    return finish("ineighbours", wrong);
}
