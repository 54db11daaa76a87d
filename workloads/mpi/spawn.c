/* Processes that are spawned and let go: twice, all ranks together spawn two copies of the program, rank 0 sends one
 * of them a message, and both sides disconnect. Then the ranks pass one int around their ring.
 *
 * Point-to-point within the world: 1 message of 4 bytes from r to (r+1) mod n.
 * Usage: spawn
 */
#include "workload.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int value = 0;
    MPI_Comm parents;
    MPI_Comm_get_parent(&parents);
    if (parents != MPI_COMM_NULL) {
        if (rank == 1)
            MPI_Recv(&value, 1, MPI_INT, 0, 0, parents, MPI_STATUS_IGNORE);
        MPI_Comm_disconnect(&parents);
        MPI_Finalize();
        return rank == 1 && value != 7;
    }
    for (int generation = 0; generation < 2; generation++) {
        MPI_Comm children;
        MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children, MPI_ERRCODES_IGNORE);
        value = 7;
        if (rank == 0)
            MPI_Send(&value, 1, MPI_INT, 1, 0, children);
        MPI_Comm_disconnect(&children);
    }
    MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % ranks, 0, &value, 1, MPI_INT, (rank + ranks - 1) % ranks, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return finish("spawn", value != (rank + ranks - 1) % ranks);
}
