/* Every thread reads all of a table that the main thread writes; AFTER: the table's pages are dealt over the nodes. */
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { N = 1 << 18, ROUNDS = 2, INTERLEAVE = 3 };

int main(void)
{
    size_t bytes = sizeof(double) * N;
    double *table = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), sum = 0;
#ifdef AFTER
    unsigned long nodes = 1;
    syscall(SYS_mbind, table, bytes, INTERLEAVE, &nodes, 64ul, 0u);
#endif
    for (long at = 0; at < N; at++)
        table[at] = at * 0.5;
#pragma omp parallel reduction(+ : sum)
    for (int round = 0; round < ROUNDS; round++)
        for (long at = 0; at < N; at++)
            sum += table[at] * (round + 1);
    printf("%g\n", sum);
    return 0;
}
