/* Models collectives: the messages one rank sends under the standard algorithm for the size, as
 * MPICH 4 chooses it by default (Thakur, Rabenseifner, Gropp: Optimization of collective communication
 * operations in MPICH, IJHPCA 19(1), 2005, gives algorithms and the reasons for the limits).
 *
 * Pure functions: rank `me` of `size`, both in the communicator; each message goes to `send`. What is
 * modelled is the flow of data, not pipelining: a message cut into segments counts once. */
#ifndef NUMALOC_COLLECTIVE_MODEL_H
#define NUMALOC_COLLECTIVE_MODEL_H

#include <stdint.h>

struct numaloc_collective {
    int me, size;
    void (*send)(void *context, int peer, uint64_t bytes);
    void *context;
};

void numaloc_model_barrier(const struct numaloc_collective *c);
/* `bytes`: the whole buffer. */
void numaloc_model_bcast(const struct numaloc_collective *c, int root, uint64_t bytes);
void numaloc_model_reduce(const struct numaloc_collective *c, int root, uint64_t bytes);
void numaloc_model_allreduce(const struct numaloc_collective *c, uint64_t bytes);
void numaloc_model_scan(const struct numaloc_collective *c, uint64_t bytes);
/* `bytes`: one rank's block. */
void numaloc_model_gather(const struct numaloc_collective *c, int root, uint64_t bytes);
void numaloc_model_scatter(const struct numaloc_collective *c, int root, uint64_t bytes);
void numaloc_model_allgather(const struct numaloc_collective *c, uint64_t bytes);
void numaloc_model_alltoall(const struct numaloc_collective *c, uint64_t bytes);
/* `block(k)`: bytes of rank k's block; `of`: passed to it. */
typedef uint64_t numaloc_block(const void *of, int k);
void numaloc_model_allgatherv(const struct numaloc_collective *c, numaloc_block *block, const void *of);
void numaloc_model_alltoallv(const struct numaloc_collective *c, numaloc_block *block, const void *of);
void numaloc_model_reduce_scatter(const struct numaloc_collective *c, numaloc_block *block, const void *of);

#endif
