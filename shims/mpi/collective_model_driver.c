/* Prints the messages of a modelled collective, one "source destination bytes" a line, for tests.
 * Usage: driver NAME RANKS ROOT BYTES */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collective_model.h"

static void print(void *rank, int peer, uint64_t bytes) {
    printf("%d %d %llu\n", *(int *)rank, peer, (unsigned long long)bytes);
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    int size = atoi(argv[2]), root = atoi(argv[3]);
    uint64_t bytes = strtoull(argv[4], NULL, 10);
    for (int me = 0; me < size; me++) {
        struct numaloc_collective c = {me, size, print, &me};
        if (!strcmp(argv[1], "barrier")) numaloc_model_barrier(&c);
        else if (!strcmp(argv[1], "bcast")) numaloc_model_bcast(&c, root, bytes);
        else if (!strcmp(argv[1], "reduce")) numaloc_model_reduce(&c, root, bytes);
        else if (!strcmp(argv[1], "allreduce")) numaloc_model_allreduce(&c, bytes);
        else if (!strcmp(argv[1], "gather")) numaloc_model_gather(&c, root, bytes);
        else if (!strcmp(argv[1], "scatter")) numaloc_model_scatter(&c, root, bytes);
        else if (!strcmp(argv[1], "allgather")) numaloc_model_allgather(&c, bytes);
        else if (!strcmp(argv[1], "alltoall")) numaloc_model_alltoall(&c, bytes);
        else return 2;
    }
    return 0;
}
