/* MPI 4's ways to send, for libraries that have them: to the next rank one MPI_Isendrecv of 10 bytes, one
 * MPI_Isendrecv_replace of 20, and a partitioned send of 3 partitions of 10 bytes, started twice.
 *
 * Point-to-point, r to (r+1) mod n: 2 messages, 30 bytes; persistent: 2 messages, 60 bytes. With an older MPI:
 * the same bytes in 2 MPI_Sendrecv and a persistent send of 30 bytes, started twice.
 * Usage: kinds4
 */
#include "workload.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    char out[64] = {0}, in[64] = {1};
    int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    MPI_Request requests[2];
#if MPI_VERSION >= 4
    MPI_Isendrecv(out, 10, MPI_CHAR, next, 1, in, 10, MPI_CHAR, previous, 1, MPI_COMM_WORLD, requests);
    MPI_Wait(requests, MPI_STATUS_IGNORE);
    MPI_Isendrecv_replace(out, 20, MPI_CHAR, next, 2, previous, 2, MPI_COMM_WORLD, requests);
    MPI_Wait(requests, MPI_STATUS_IGNORE);
    MPI_Psend_init(out, 3, 10, MPI_CHAR, next, 3, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
    MPI_Precv_init(in, 3, 10, MPI_CHAR, previous, 3, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]);
#else
    MPI_Sendrecv(out, 10, MPI_CHAR, next, 1, in, 10, MPI_CHAR, previous, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv_replace(out, 20, MPI_CHAR, next, 2, previous, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send_init(out, 30, MPI_CHAR, next, 3, MPI_COMM_WORLD, &requests[0]);
    MPI_Recv_init(in, 30, MPI_CHAR, previous, 3, MPI_COMM_WORLD, &requests[1]);
#endif
    for (int start = 0; start < 2; start++) {
        MPI_Startall(2, requests);
#if MPI_VERSION >= 4
        MPI_Pready_range(0, 2, requests[0]);
#endif
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    return finish("kinds4", in[0] != 0);
}
