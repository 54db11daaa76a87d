#include "collective_model.h"

/* MPICH's default limits, in bytes. */
#define BCAST_SHORT 12288u
#define BCAST_MIN_RANKS 8
#define REDUCE_SHORT 2048u
#define ALLREDUCE_SHORT 2048u
#define ALLGATHER_SHORT 81920u
#define ALLTOALL_SHORT 256u
#define REDUCE_SCATTER_SHORT 524288u

static void send(const struct numaloc_collective *c, int peer, uint64_t bytes) {
    c->send(c->context, peer, bytes);
}

static int power_below(int size) { /* largest power of two of at most `size` */
    int power = 1;
    while (power * 2 <= size) power *= 2;
    return power;
}

static int is_power(int size) { return (size & (size - 1)) == 0; }

/* Bytes of block k of `bytes` distributed over `size` ranks; the first ranks get one byte more if there is a
 * remainder. */
static uint64_t share(uint64_t bytes, int size, int k) {
    return bytes / (uint64_t)size + ((uint64_t)k < bytes % (uint64_t)size);
}

void numaloc_model_barrier(const struct numaloc_collective *c) { /* dissemination */
    for (int64_t step = 1; step < c->size; step *= 2)
        send(c, (int)((c->me + step) % c->size), 0);
}

/* Binomial tree rooted at relative rank 0: calls `pass` for each child and the ranks below it. */
static int children(int relative, int size, int *first) {
    int mask = 1;
    while (mask < size && !(relative & mask)) mask *= 2;
    *first = mask / 2; /* the farthest child is `relative + mask / 2` */
    return mask;
}

static int below(int child, int mask, int size) { /* ranks in the child's subtree, itself included */
    return child + mask <= size ? mask : size - child;
}

void numaloc_model_bcast(const struct numaloc_collective *c, int root, uint64_t bytes) {
    int size = c->size, relative = (c->me - root + size) % size, first;
    if (size < 2 || bytes == 0) return;
    children(relative, size, &first);
    int is_long = bytes >= BCAST_SHORT && size >= BCAST_MIN_RANKS;
    for (int mask = first; mask > 0; mask /= 2) {
        int child = relative + mask;
        if (child >= size) continue;
        uint64_t amount = bytes;
        if (is_long) { /* scatter: only what the subtree keeps */
            uint64_t block = (bytes + (uint64_t)size - 1) / (uint64_t)size, start = (uint64_t)child * block;
            uint64_t most = (uint64_t)below(child, mask, size) * block;
            amount = start >= bytes ? 0 : (bytes - start < most ? bytes - start : most);
            if (amount == 0) continue;
        }
        send(c, (child + root) % size, amount);
    }
    if (!is_long) return;
    /* then each rank passes every block but its right neighbour's own around the ring */
    for (int step = 0; step < size - 1; step++)
        send(c, (c->me + 1) % size, share(bytes, size, (relative - step + size) % size));
}

/* Folding to a power of two: of the first 2 * rest ranks, even ones hand theirs to the odd neighbour.
 * Returns this rank's number among the folded ones, -1 if it has none. */
static int fold(const struct numaloc_collective *c, int rest, uint64_t bytes) {
    if (c->me >= 2 * rest) return c->me - rest;
    if (c->me % 2 == 0) {
        send(c, c->me + 1, bytes);
        return -1;
    }
    return c->me / 2;
}

static int unfolded(int folded, int rest) { return folded < rest ? folded * 2 + 1 : folded + rest; }

/* Recursive halving over a power of two: each step sends the half of the remaining blocks that the
 * partner keeps. `block` may be asked for blocks 0..power. */
static void halve(const struct numaloc_collective *c, int folded, int power, int rest, uint64_t bytes) {
    int start = 0;
    for (int mask = power / 2; mask > 0; mask /= 2) {
        int partner = folded ^ mask, theirs = folded & mask ? start : start + mask;
        uint64_t amount = 0;
        for (int k = theirs; k < theirs + mask; k++) amount += share(bytes, power, k);
        send(c, unfolded(partner, rest), amount);
        if (folded & mask) start += mask;
    }
}

/* The reverse: recursive doubling of blocks. */
static void gather_doubling(const struct numaloc_collective *c, int folded, int power, int rest,
                            uint64_t bytes) {
    for (int mask = 1; mask < power; mask *= 2) {
        int start = folded & ~(mask - 1);
        uint64_t amount = 0;
        for (int k = start; k < start + mask; k++) amount += share(bytes, power, k);
        send(c, unfolded(folded ^ mask, rest), amount);
    }
}

void numaloc_model_allreduce(const struct numaloc_collective *c, uint64_t bytes) {
    int power = power_below(c->size), rest = c->size - power;
    if (c->size < 2) return;
    int folded = fold(c, rest, bytes);
    if (folded >= 0) {
        if (bytes <= ALLREDUCE_SHORT || bytes < (uint64_t)power) {
            for (int mask = 1; mask < power; mask *= 2) send(c, unfolded(folded ^ mask, rest), bytes);
        } else {
            halve(c, folded, power, rest, bytes);
            gather_doubling(c, folded, power, rest, bytes);
        }
    }
    if (c->me < 2 * rest && c->me % 2 == 1) send(c, c->me - 1, bytes); /* unfold */
}

void numaloc_model_reduce(const struct numaloc_collective *c, int root, uint64_t bytes) {
    int size = c->size, relative = (c->me - root + size) % size, first;
    if (size < 2) return;
    if (bytes <= REDUCE_SHORT || bytes < (uint64_t)power_below(size)) {
        int mask = children(relative, size, &first);
        if (relative != 0) send(c, ((relative & ~mask) + root) % size, bytes);
        return;
    }
    int power = power_below(size), rest = size - power;
    int folded = fold(c, rest, bytes);
    if (folded < 0) return;
    halve(c, folded, power, rest, bytes);
    /* then a binomial gather of the blocks to the root's number (a folded-away root counts as its
     * neighbour, which hands it the result) */
    int target = root >= 2 * rest ? root - rest : root / 2;
    relative = (folded - target + power) % power;
    int mask = children(relative, power, &first);
    if (relative != 0) {
        uint64_t amount = 0;
        for (int k = 0; k < mask && relative + k < power; k++)
            amount += share(bytes, power, (relative + k + target) % power);
        int to = unfolded(((relative & ~mask) + target) % power, rest);
        send(c, to, amount);
    } else if (unfolded(target, rest) != root) {
        send(c, root, bytes);
    }
}

void numaloc_model_scan(const struct numaloc_collective *c, uint64_t bytes) {
    for (int mask = 1; mask < c->size; mask *= 2)
        if ((c->me ^ mask) < c->size) send(c, c->me ^ mask, bytes);
}

void numaloc_model_gather(const struct numaloc_collective *c, int root, uint64_t bytes) {
    int relative = (c->me - root + c->size) % c->size, first;
    int mask = children(relative, c->size, &first);
    if (relative != 0)
        send(c, ((relative & ~mask) + root) % c->size, bytes * (uint64_t)below(relative, mask, c->size));
}

void numaloc_model_scatter(const struct numaloc_collective *c, int root, uint64_t bytes) {
    int relative = (c->me - root + c->size) % c->size, first;
    children(relative, c->size, &first);
    for (int mask = first; mask > 0; mask /= 2)
        if (relative + mask < c->size)
            send(c, (relative + mask + root) % c->size, bytes * (uint64_t)below(relative + mask, mask, c->size));
}

void numaloc_model_allgather(const struct numaloc_collective *c, uint64_t bytes) {
    int size = c->size;
    if (bytes * (uint64_t)size < ALLGATHER_SHORT && is_power(size)) {
        for (int mask = 1; mask < size; mask *= 2) send(c, c->me ^ mask, bytes * (uint64_t)mask);
    } else if (bytes * (uint64_t)size < ALLGATHER_SHORT) { /* Bruck */
        for (int step = 1; step < size; step *= 2) {
            int blocks = step * 2 <= size ? step : size - step;
            send(c, (c->me - step + size) % size, bytes * (uint64_t)blocks);
        }
    } else { /* ring */
        for (int step = 0; step < size - 1; step++) send(c, (c->me + 1) % size, bytes);
    }
}

void numaloc_model_allgatherv(const struct numaloc_collective *c, numaloc_block *block, const void *of) {
    for (int step = 0; step < c->size - 1; step++)
        send(c, (c->me + 1) % c->size, block(of, (c->me - step + c->size) % c->size));
}

void numaloc_model_alltoall(const struct numaloc_collective *c, uint64_t bytes) {
    int size = c->size;
    if (bytes <= ALLTOALL_SHORT && size >= 8) { /* Bruck: blocks whose number has the bit set */
        for (int step = 1; step < size; step *= 2) {
            int blocks = 0;
            for (int k = 0; k < size; k++) blocks += (k & step) != 0;
            send(c, (c->me + step) % size, bytes * (uint64_t)blocks);
        }
        return;
    }
    for (int k = 1; k < size; k++) send(c, (c->me + k) % size, bytes);
}

void numaloc_model_alltoallv(const struct numaloc_collective *c, numaloc_block *block, const void *of) {
    for (int k = 1; k < c->size; k++) {
        int peer = (c->me + k) % c->size;
        uint64_t bytes = block(of, peer);
        if (bytes > 0) send(c, peer, bytes);
    }
}

void numaloc_model_reduce_scatter(const struct numaloc_collective *c, numaloc_block *block, const void *of) {
    int size = c->size;
    uint64_t bytes = 0;
    for (int k = 0; k < size; k++) bytes += block(of, k);
    if (bytes < REDUCE_SCATTER_SHORT) {
        int power = power_below(size), rest = size - power;
        int folded = fold(c, rest, bytes);
        if (folded >= 0) halve(c, folded, power, rest, bytes);
        if (c->me < 2 * rest && c->me % 2 == 1) send(c, c->me - 1, block(of, c->me - 1));
        return;
    }
    for (int k = 1; k < size; k++) { /* pairwise */
        int peer = (c->me - k + size) % size;
        send(c, peer, block(of, peer));
    }
}
