/* Neighbourhood collectives on graphs: a directed ring of which each rank tells its own edges (dist-graph, to the
 * next rank only), and a ring told whole (graph, to both neighbours). For three ranks or more, so that the two
 * neighbours differ.
 *
 * Collective, per iteration: from r to (r+1) mod n 4 messages of COUNT doubles (all-to-all, all-gather and
 * non-blocking all-to-all on the directed ring, all-to-all on the whole one), from r to (r-1) mod n one.
 * Usage: neighbours [COUNT=100] [ITERATIONS=5]
 */
#include "workload.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    long count = argument(argc, argv, 1, 100), iterations = argument(argc, argv, 2, 5);
    int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks, wrong = 0;
    MPI_Comm directed, whole;
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &previous, &(int){1}, 1, &next, &(int){1}, MPI_INFO_NULL, 0,
                                   &directed);
    int *ends = malloc(sizeof(int) * (size_t)ranks), *edges = malloc(sizeof(int) * (size_t)(2 * ranks));
    for (int r = 0; r < ranks; r++) {
        ends[r] = 2 * (r + 1);
        edges[2 * r] = (r + 1) % ranks;
        edges[2 * r + 1] = (r + ranks - 1) % ranks;
    }
    MPI_Graph_create(MPI_COMM_WORLD, ranks, ends, edges, 0, &whole);
    double *out = buffer(2 * count), *in = buffer(2 * count);
    for (long it = 0; it < iterations; it++) {
        MPI_Request request;
        MPI_Neighbor_alltoall(out, (int)count, MPI_DOUBLE, in, (int)count, MPI_DOUBLE, directed);
        MPI_Neighbor_allgather(out, (int)count, MPI_DOUBLE, in, (int)count, MPI_DOUBLE, directed);
        wrong |= in[count - 1] != previous;
        MPI_Ineighbor_alltoall(out, (int)count, MPI_DOUBLE, in, (int)count, MPI_DOUBLE, directed, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Neighbor_alltoall(out, (int)count, MPI_DOUBLE, in, (int)count, MPI_DOUBLE, whole);
        wrong |= in[0] != next || in[2 * count - 1] != previous;
    }
    MPI_Comm_free(&directed);
    MPI_Comm_free(&whole);
    free(ends), free(edges), free(out), free(in);
    return finish("neighbours", wrong);
}
