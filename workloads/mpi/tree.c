/* Sum over a binary tree, written with sends: rank r > 0 sends COUNT doubles to its parent (r-1)/2 and
 * gets the result back from it, ITERATIONS times.
 *
 * Point-to-point between r and (r-1)/2, both directions: ITERATIONS messages and ITERATIONS * COUNT * 8
 * bytes each. The root alone never waits for a parent; leaves never receive from children.
 * Usage: tree [COUNT=100] [ITERATIONS=50]
 */
#include "workload.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    long count = argument(argc, argv, 1, 100), iterations = argument(argc, argv, 2, 50);
    double *sum = buffer(count), *child = buffer(count);
    int parent = (rank - 1) / 2, wrong = 0;
    for (long it = 0; it < iterations; it++) {
        for (long i = 0; i < count; i++)
            sum[i] = rank;
        for (int c = 2 * rank + 1; c <= 2 * rank + 2 && c < ranks; c++) {
            MPI_Recv(child, (int)count, MPI_DOUBLE, c, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            for (long i = 0; i < count; i++)
                sum[i] += child[i];
        }
        if (rank > 0) {
            MPI_Send(sum, (int)count, MPI_DOUBLE, parent, 0, MPI_COMM_WORLD);
            MPI_Recv(sum, (int)count, MPI_DOUBLE, parent, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        for (int c = 2 * rank + 1; c <= 2 * rank + 2 && c < ranks; c++)
            MPI_Send(sum, (int)count, MPI_DOUBLE, c, 1, MPI_COMM_WORLD);
        wrong |= sum[0] != ranks * (ranks - 1) / 2.0;
    }
    return finish("tree", wrong);
}
