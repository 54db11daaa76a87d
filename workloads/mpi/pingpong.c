/* Ping-pong between ranks 0 and 1: prints half the round trip of 8-byte messages in nanoseconds and the
 * bandwidth of 1 MiB messages in bytes per second, the best of REPEATS rounds each.
 *
 * Point-to-point, 0 to 1 and back: REPEATS * ROUNDS messages of 8 bytes and REPEATS * ROUNDS / 50 of 1 MiB.
 * With one rank: REPEATS * ROUNDS messages of 8 bytes to itself, and what one takes; nobody else's pace is in it, so it shows
 * what a tracer adds also on a busy machine.
 * Usage: pingpong [ROUNDS=10000] [REPEATS=10]
 */
#include "workload.h"

static double seconds_per_message(char *memory, int bytes, long rounds)
{
    double start = MPI_Wtime();
    for (long k = 0; k < rounds; k++) {
        if (rank == 0) {
            MPI_Send(memory, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
            MPI_Recv(memory, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(memory, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(memory, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
        }
    }
    return (MPI_Wtime() - start) / (double)rounds / 2;
}

static double seconds_per_message_to_itself(char *memory, long rounds)
{
    double start = MPI_Wtime();
    for (long k = 0; k < rounds; k++) {
        MPI_Request request;
        MPI_Irecv(memory + 8, 8, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &request);
        MPI_Send(memory, 8, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    return (MPI_Wtime() - start) / (double)rounds;
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    long rounds = argument(argc, argv, 1, 10000), repeats = argument(argc, argv, 2, 10);
    double latency = 1, transfer = 1;
    char *memory = calloc(1, 1 << 20);
    if (ranks > 2 || !memory)
        MPI_Abort(MPI_COMM_WORLD, 2);
    for (long r = 0; r < repeats && ranks == 1; r++) {
        double itself = seconds_per_message_to_itself(memory, rounds);
        latency = itself < latency ? itself : latency;
    }
    for (long r = 0; r < repeats && ranks == 2; r++) {
        double small = seconds_per_message(memory, 8, rounds);
        double large = seconds_per_message(memory, 1 << 20, rounds / 50 + 1);
        latency = small < latency ? small : latency;
        transfer = large < transfer ? large : transfer;
    }
    if (rank == 0)
        printf("latency_ns %.1f bandwidth_bytes_per_s %.4e\n", latency * 1e9, (1 << 20) / transfer);
    MPI_Finalize();
    return 0;
}
