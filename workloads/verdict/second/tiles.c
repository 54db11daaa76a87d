/* Tiles of one large array, each small enough for a private cache: thread t works eight times on each tile whose number leaves t,
 * then goes to its next one. The first thread filled the array; the last step reads it by rows that cross all tiles.
 *
 * Usage: tiles [TILES=160] [CELLS=2048] [ROUNDS=4] */
#include "../../workload.h"

int main(int argc, char **argv)
{
    long tiles = argument(argc, argv, 1, 160), cells = argument(argc, argv, 2, 2048);
    long rounds = argument(argc, argv, 3, 4), wrong = 0;
    uint64_t *array = pages((size_t)tiles * (size_t)cells * sizeof *array), sum = 0;
    for (long i = 0; i < tiles * cells; i++)
        array[i] = (uint64_t)i;
#pragma omp parallel reduction(+ : wrong, sum)
    {
        int t = omp_get_thread_num(), n = omp_get_num_threads();
        for (long round = 0; round < rounds; round++) {
            for (long tile = t; tile < tiles; tile += n)
                for (long pass = 0; pass < 8; pass++)
                    for (long i = tile * cells; i < (tile + 1) * cells; i++)
                        array[i] += 1;
#pragma omp barrier
            for (long i = t; i < tiles * cells; i += 8 * n) {
                wrong += array[i] != (uint64_t)(i + 8 * (round + 1));
                sum += array[i];
            }
#pragma omp barrier
        }
    }
    return finish("tiles", wrong, sum);
}
