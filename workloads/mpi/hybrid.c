/* MPI ranks of OpenMP threads: a ring of ranks, and in each rank a ring of its threads.
 *
 * Point-to-point: each iteration, rank r's first thread sends COUNT doubles to rank r+1 (ITERATIONS messages and
 * ITERATIONS * COUNT * 8 bytes a pair). Memory: each iteration, thread t of a rank writes its COUNT doubles, and after a
 * barrier thread t+1 of the same rank reads them (COUNT / 8 cache lines). Threads of different ranks meet only in
 * the MPI library's own shared memory.
 * Pages: each thread's part is written by it and read by the next.
 * Usage: hybrid [COUNT=4096] [ITERATIONS=20]
 */
#include <omp.h>
#include "workload.h"

int main(int argc, char **argv)
{
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    long count = argument(argc, argv, 1, 4096), iterations = argument(argc, argv, 2, 20);
    int threads = omp_get_max_threads(), wrong = 0;
    double *out = buffer(count), *in = buffer(count);
    /* Lines of their own for each thread. */
    double *parts = aligned_alloc(4096, (size_t)threads * (size_t)((count * 8 + 4095) / 4096) * 4096);
    long stride = (count * 8 + 4095) / 4096 * 512;
    if (!parts)
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (long it = 0; it < iterations; it++) {
        int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
        MPI_Sendrecv(out, (int)count, MPI_DOUBLE, to, 0, in, (int)count, MPI_DOUBLE, from, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        wrong |= in[0] != from;
#pragma omp parallel num_threads(threads) reduction(| : wrong)
        {
            int me = omp_get_thread_num(), other = (me + threads - 1) % threads;
            volatile double *mine = parts + me * stride, *theirs = parts + other * stride;
            for (long i = 0; i < count; i++)
                mine[i] = (double)(it + me);
#pragma omp barrier
            for (long i = 0; i < count; i++)
                wrong |= theirs[i] != (double)(it + other);
        }
    }
    free(parts);
    return finish("hybrid", wrong);
}
