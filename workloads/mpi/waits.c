/* Known waiting: rank 0 or rank 1 comes late to one call after the other, and rank 0 prints for each how long the other rank
 * waited in it, in nanoseconds by the clocks of both ranks: `OPERATION KIND RANK NANOSECONDS`.
 *
 * Point-to-point: single messages of at most 8 bytes. Usage, on one host with 2 ranks: waits [MILLISECONDS=200]
 */
#include <time.h>

#include "workload.h"

enum { RECV, WAIT, WAITALL, PROBE, SENDRECV, SSEND, ISSEND, BARRIER, BCAST, IBARRIER, DUPLICATE, KINDS };
static const struct { const char *operation, *kind; int late; } kinds[KINDS] = {
    {"MPI_Recv", "late_sender", 0},      {"MPI_Wait", "late_sender", 0},      {"MPI_Waitall", "late_sender", 0},
    {"MPI_Probe", "late_sender", 0},     {"MPI_Sendrecv", "late_sender", 0},  {"MPI_Ssend", "late_receiver", 1},
    {"MPI_Waitany", "late_receiver", 1}, {"MPI_Barrier", "imbalance", 0},     {"MPI_Bcast", "imbalance", 0},
    {"MPI_Waitsome", "imbalance", 0},    {"MPI_Mprobe", "late_sender", 0},
};
static double entered[KINDS];
static long pause_ms;

/* Both ranks begin a kind; one comes late. Then they note the time, right before the call. */
static void meet(int kind)
{
    int in = 0, out;
    MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    struct timespec now, pause = {pause_ms / 1000, pause_ms % 1000 * 1000000};
    if (kinds[kind].late == rank)
        nanosleep(&pause, NULL);
    clock_gettime(CLOCK_MONOTONIC, &now);
    entered[kind] = (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void late_senders(void)
{
    int value = rank, other;
    MPI_Status status, statuses[2];
    MPI_Request request, many[2];
    meet(RECV);
    if (rank == 0)
        MPI_Send(&value, 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
    else
        MPI_Recv(&other, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 1)
        MPI_Irecv(&other, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &request);
    meet(WAIT);
    if (rank == 0)
        MPI_Send(&value, 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
    else
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    int two[2];
    if (rank == 1) {
        MPI_Recv_init(&two[0], 1, MPI_INT, 0, 2, MPI_COMM_WORLD, &many[0]);
        MPI_Irecv(&two[1], 1, MPI_INT, 0, 1, MPI_COMM_WORLD, &many[1]);
        MPI_Start(&many[0]);
    }
    meet(WAITALL);
    if (rank == 0) {
        MPI_Send(&value, 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
        MPI_Send(&value, 1, MPI_INT, 1, 2, MPI_COMM_WORLD);
    } else {
        MPI_Waitall(2, many, statuses);
        MPI_Request_free(&many[0]);
    }
    meet(PROBE);
    if (rank == 0) {
        MPI_Send(&value, 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
    } else {
        MPI_Probe(0, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        MPI_Recv(&other, 1, MPI_INT, 0, status.MPI_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    meet(SENDRECV);
    MPI_Sendrecv(&value, 1, MPI_INT, !rank, 1, &other, 1, MPI_INT, !rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void late_receivers(void)
{
    int value = rank, other, index;
    MPI_Request request;
    meet(SSEND);
    if (rank == 0)
        MPI_Ssend(&value, 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
    else
        MPI_Recv(&other, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 0)
        MPI_Issend(&value, 1, MPI_INT, 1, 1, MPI_COMM_WORLD, &request);
    meet(ISSEND);
    if (rank == 0)
        MPI_Waitany(1, &request, &index, MPI_STATUS_IGNORE);
    else
        MPI_Recv(&other, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void collectives(void)
{
    int value = rank, count, index;
    MPI_Status status;
    MPI_Request request;
    meet(BARRIER);
    MPI_Barrier(MPI_COMM_WORLD);
    meet(BCAST);
    MPI_Bcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD);
    meet(IBARRIER);
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    MPI_Waitsome(1, &request, &count, &index, &status);
}

/* The same tag in a second communicator of the same ranks: messages are received in another order than they are sent. */
static void duplicated(void)
{
    int value = rank, other;
    MPI_Comm second;
    MPI_Message message;
    MPI_Comm_dup(MPI_COMM_WORLD, &second);
    if (rank == 0)
        MPI_Send(&value, 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
    meet(DUPLICATE);
    if (rank == 0) {
        MPI_Send(&value, 1, MPI_INT, 1, 1, second);
    } else {
        MPI_Mprobe(0, 1, second, &message, MPI_STATUS_IGNORE);
        MPI_Mrecv(&other, 1, MPI_INT, &message, MPI_STATUS_IGNORE);
        MPI_Recv(&other, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Comm_free(&second);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    pause_ms = argument(argc, argv, 1, 200);
    if (ranks != 2)
        MPI_Abort(MPI_COMM_WORLD, 2);
    late_senders();
    late_receivers();
    collectives();
    duplicated();
    double all[2][KINDS];
    MPI_Gather(entered, KINDS, MPI_DOUBLE, all, KINDS, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    for (int kind = 0; kind < KINDS && rank == 0; kind++) {
        int late = kinds[kind].late;
        printf("%s %s %d %.0f\n", kinds[kind].operation, kinds[kind].kind, !late, all[late][kind] - all[!late][kind]);
    }
    MPI_Finalize();
    return 0;
}
