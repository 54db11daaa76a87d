/* One of each way to send, on a communicator whose ranks run backwards (world rank w has rank n-1-w), so
 * that a tracer that does not translate ranks gets every pair wrong. Needs at least 3 ranks.
 *
 * With next = world rank (w+n-1) mod n, each rank sends to next, point-to-point:
 *   MPI_Bsend, Ssend, Rsend, Isend, Issend, Sendrecv_replace: 1 message each of 10, 20, 30, 40, 50, 60
 *   bytes; a persistent send of 70 bytes started twice (MPI_Start, MPI_Startall): 8 messages, 350 bytes.
 * One-sided, in one fence epoch: a put of 80 bytes and an accumulate of 96 bytes to next; a get of 100
 * bytes from world rank (w+n-2) mod n (data flows from there to w).
 * Messages to MPI_PROC_NULL are none.
 * Usage: kinds
 */
#include <string.h>
#include "workload.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    MPI_Comm backwards;
    MPI_Comm_split(MPI_COMM_WORLD, 0, ranks - rank, &backwards);
    int me, next, previous, wrong = 0;
    MPI_Comm_rank(backwards, &me);
    next = (me + 1) % ranks;
    previous = (me + ranks - 1) % ranks;
    char out[128], in[9][128], attached[4096 + MPI_BSEND_OVERHEAD];
    memset(out, me, sizeof out);
    memset(in, 0xff, sizeof in);
    MPI_Buffer_attach(attached, sizeof attached);
    MPI_Request receive[8], send[3];
    static const int length[8] = {10, 20, 30, 40, 50, 60, 70, 70};
    for (int k = 0; k < 8; k++)
        if (k != 5)
            MPI_Irecv(in[k], length[k], MPI_BYTE, previous, k, backwards, &receive[k]);
    MPI_Barrier(backwards); /* a ready send needs its receive posted */
    MPI_Bsend(out, 10, MPI_BYTE, next, 0, backwards);
    MPI_Rsend(out, 30, MPI_BYTE, next, 2, backwards);
    MPI_Isend(out, 40, MPI_BYTE, next, 3, backwards, &send[0]);
    MPI_Issend(out, 50, MPI_BYTE, next, 4, backwards, &send[1]);
    MPI_Ssend(out, 20, MPI_BYTE, next, 1, backwards);
    memset(in[5], me, 60);
    MPI_Sendrecv_replace(in[5], 60, MPI_BYTE, next, 5, previous, 5, backwards, MPI_STATUS_IGNORE);
    receive[5] = MPI_REQUEST_NULL;
    MPI_Waitall(2, send, MPI_STATUSES_IGNORE);
    for (int k = 6; k < 8; k++) {
        MPI_Send_init(out, 70, MPI_BYTE, next, k, backwards, &send[2]);
        if (k == 6)
            MPI_Start(&send[2]);
        else
            MPI_Startall(1, &send[2]);
        MPI_Wait(&send[2], MPI_STATUS_IGNORE);
        MPI_Request_free(&send[2]);
    }
    MPI_Send(out, 128, MPI_BYTE, MPI_PROC_NULL, 9, backwards);
    MPI_Waitall(8, receive, MPI_STATUSES_IGNORE);
    for (int k = 0; k < 8; k++)
        wrong |= in[k][0] != previous || in[k][length[k] - 1] != previous;

    char *window;
    MPI_Win win;
    MPI_Win_allocate(512, 1, MPI_INFO_NULL, backwards, &window, &win);
    memset(window, me, 512);
    MPI_Win_fence(0, win);
    MPI_Put(out, 80, MPI_BYTE, next, 256, 80, MPI_BYTE, win);
    MPI_Accumulate(out, 96, MPI_BYTE, next, 400, 96, MPI_BYTE, MPI_REPLACE, win);
    MPI_Get(in[8], 100, MPI_BYTE, (me + 2) % ranks, 0, 100, MPI_BYTE, win);
    MPI_Win_fence(0, win);
    wrong |= window[256] != previous || window[400] != previous || in[8][99] != (me + 2) % ranks;
    MPI_Win_free(&win);
    MPI_Comm_free(&backwards);
    int detached;
    void *unused;
    MPI_Buffer_detach(&unused, &detached);
    return finish("kinds", wrong);
}
