/* Bucket sort (NPB IS's pattern): each iteration ranks tell each other how many keys go where
 * (MPI_Alltoall of one int per pair), then exchange the keys (MPI_Alltoallv).
 *
 * Keys are made so that every rank sends exactly KEYS/n keys (4 bytes each) to every rank. Collective,
 * ordered pair of different ranks: ITERATIONS * KEYS / n * 4 bytes of keys in Alltoallv, plus the counts,
 * which the library may bundle. KEYS is rounded down to a multiple of n.
 * Usage: bucket_sort [KEYS=16000] [ITERATIONS=10]
 */
#include "workload.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int each = (int)(argument(argc, argv, 1, 16000) / ranks), wrong = 0;
    long iterations = argument(argc, argv, 2, 10);
    int *keys = malloc(sizeof(int) * (size_t)(each * ranks + 1)), *mine = malloc(sizeof(int) * (size_t)(each * ranks + 1));
    int *counts = malloc(sizeof(int) * (size_t)ranks), *expect = malloc(sizeof(int) * (size_t)ranks);
    int *starts = malloc(sizeof(int) * (size_t)ranks);
    for (long it = 0; it < iterations; it++) {
        for (int bucket = 0; bucket < ranks; bucket++) {
            counts[bucket] = each;
            starts[bucket] = bucket * each;
            for (int k = 0; k < each; k++)
                keys[bucket * each + k] = bucket * 1000 + k % 1000;
        }
        MPI_Alltoall(counts, 1, MPI_INT, expect, 1, MPI_INT, MPI_COMM_WORLD);
        MPI_Alltoallv(keys, counts, starts, MPI_INT, mine, expect, starts, MPI_INT, MPI_COMM_WORLD);
        for (int k = 0; k < each * ranks; k++)
            wrong |= mine[k] / 1000 != rank;
    }
    return finish("bucket_sort", wrong);
}
