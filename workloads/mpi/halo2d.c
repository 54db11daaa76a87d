/* 2-D halo exchange on a periodic ROWS x COLS grid of ranks (the factors of the number of ranks that
 * are closest to each other), as a stencil code does it: non-blocking, four neighbours.
 *
 * Each iteration each rank sends EDGE doubles to each of its four neighbours: point-to-point,
 * ITERATIONS messages and ITERATIONS * EDGE * 8 bytes per neighbour. With two rows (or columns) the
 * neighbour above is also the one below: twice as much; with one row it is the rank itself.
 * Usage: halo2d [EDGE=1000] [ITERATIONS=20]
 */
#include "workload.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    long edge = argument(argc, argv, 1, 1000), iterations = argument(argc, argv, 2, 20);
    int cols = 1;
    for (int c = 1; c * c <= ranks; c++)
        if (ranks % c == 0)
            cols = ranks / c;
    int rows = ranks / cols, row = rank / cols, col = rank % cols, wrong = 0;
    int neighbour[4] = {
        (row + rows - 1) % rows * cols + col, (row + 1) % rows * cols + col,
        row * cols + (col + cols - 1) % cols, row * cols + (col + 1) % cols,
    };
    double *out = buffer(edge), *in = buffer(4 * edge);
    for (long it = 0; it < iterations; it++) {
        MPI_Request request[8];
        for (int side = 0; side < 4; side++) {
            /* What my upper neighbour sends down arrives here from above: opposite tags. */
            MPI_Irecv(in + side * edge, (int)edge, MPI_DOUBLE, neighbour[side], side ^ 1, MPI_COMM_WORLD,
                      &request[side]);
            MPI_Isend(out, (int)edge, MPI_DOUBLE, neighbour[side], side, MPI_COMM_WORLD, &request[4 + side]);
        }
        MPI_Waitall(8, request, MPI_STATUSES_IGNORE);
        for (int side = 0; side < 4; side++)
            wrong |= in[side * edge] != neighbour[side];
    }
    return finish("halo2d", wrong);
}
