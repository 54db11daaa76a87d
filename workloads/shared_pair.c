/* Two processes that exchange buffers through memory they share (an anonymous MAP_SHARED mapping made
 * before fork), each with a private buffer beside it.
 *
 * Communication: all between the two processes, through the shared mapping.
 * Pages: each half of the mapping is written by one process and read by the other.
 * Usage: shared_pair [CELLS=8192] [ITERATIONS=100]
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    long cells = argc > 1 ? atol(argv[1]) : 8192, iterations = argc > 2 ? atol(argv[2]) : 100;
    if (cells < 1 || iterations < 1) {
        fprintf(stderr, "usage: %s [CELLS>=1] [ITERATIONS>=1]\n", argv[0]);
        return 2;
    }
    uint64_t *shared = mmap(0, (size_t)cells * 16, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int to_child[2], to_parent[2];
    if (shared == MAP_FAILED || pipe(to_child) || pipe(to_parent)) {
        perror("shared_pair");
        return 1;
    }
    fflush(stdout);
    pid_t child = fork();
    if (child < 0) {
        perror("fork");
        return 1;
    }
    /* Whoever is left alone sees the end of the pipe. */
    close(child == 0 ? to_child[1] : to_child[0]);
    close(child == 0 ? to_parent[0] : to_parent[1]);
    int me = child == 0, turn_in = me ? to_child[0] : to_parent[0], turn_out = me ? to_parent[1] : to_child[1];
    uint64_t *mine = shared + me * cells, *theirs = shared + (1 - me) * cells, sum = 0;
    long wrong = 0;
    char token = 't';
    for (long it = 0; it < iterations; it++) {
        for (long i = 0; i < cells; i++)
            mine[i] = (uint64_t)(me * 1000003 + it * 7919 + i);
        /* Both say that they have written, and wait for the other. */
        if (write(turn_out, &token, 1) != 1 || read(turn_in, &token, 1) != 1)
            return 1;
        for (long i = 0; i < cells; i++) {
            wrong += theirs[i] != (uint64_t)((1 - me) * 1000003 + it * 7919 + i);
            sum += theirs[i];
        }
        if (write(turn_out, &token, 1) != 1 || read(turn_in, &token, 1) != 1)
            return 1;
    }
    if (me)
        return wrong != 0;
    int status = 1;
    waitpid(child, &status, 0);
    printf("shared_pair: 2 processes, checksum %016llx, %ld wrong\n", (unsigned long long)sum, wrong);
    return wrong != 0 || status != 0;
}
