/* Counting letters of a text of one's own into a small table of one's own, tables added at the end.
 *
 * Usage: letters [BYTES=500000] [ROUNDS=3]: bytes of each thread. */
#include "../../workload.h"

int main(int argc, char **argv)
{
    long bytes = argument(argc, argv, 1, 500000), rounds = argument(argc, argv, 2, 3), total = 0;
    static long count[256];
#pragma omp parallel
    {
        unsigned char *text = pages((size_t)bytes);
        long mine[256] = {0};
        uint64_t seed = (uint64_t)omp_get_thread_num() + 1;
        for (long i = 0; i < bytes; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            text[i] = (unsigned char)(seed >> 56);
        }
        for (long round = 0; round < rounds; round++)
            for (long i = 0; i < bytes; i++)
                mine[text[i]]++;
#pragma omp critical
        for (int c = 0; c < 256; c++)
            count[c] += mine[c];
        free(text);
    }
    for (int c = 0; c < 256; c++)
        total += count[c];
    return finish("letters", total != bytes * rounds * omp_get_max_threads(), (uint64_t)count[0]);
}
