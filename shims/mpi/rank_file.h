/* Writer of rank files, used by every shim: one append-only file per rank (docs/formats/mpi-rank-file.md).
 *
 * Times are nanoseconds since NUMALOC_MPI_T0 (realtime clock), the zero that `numaloc record` gives
 * all ranks of a run. Amounts are summed per slice of time, peer and kind: memory stays constant
 * (240 KiB, static) however long the program runs and however many ranks it has.
 */
#ifndef NUMALOC_RANK_FILE_H
#define NUMALOC_RANK_FILE_H

#include <stdint.h>

/* The kind of a message. The values are part of the file format; readers refuse others. */
enum numaloc_kind {
    NUMALOC_POINT_TO_POINT = 0, /* self to peer: the program's own send */
    NUMALOC_PERSISTENT = 1,     /* self to peer: the program's own, started from a persistent request */
    NUMALOC_PUT = 2,            /* self to peer: one-sided put or accumulate */
    NUMALOC_GET = 3,            /* peer to self: one-sided get */
    NUMALOC_COLLECTIVE = 4,     /* self to peer: sent by the library inside a collective, as observed */
    NUMALOC_STARTED = 5,        /* the same, sent through the library's own persistent requests */
    NUMALOC_MODELLED = 6,       /* self to peer: a collective decomposed by its standard algorithm */
    NUMALOC_OPERATION = 7,      /* self to peer: the library's own estimate per collective call; a
                                   second view of the collectives, never added to them */
    NUMALOC_KINDS = 8
};

/* The observer of the messages. The values are part of the file format. */
enum numaloc_source { NUMALOC_OPEN_MPI_MONITORING = 1, NUMALOC_PMPI = 2 };

/* Opens this rank's file in NUMALOC_MPI_DIR; without that variable, or after a failure, all
 * functions below have no effect. `size` 0: not known. `job` distinguishes worlds (MPI_Comm_spawn). */
void numaloc_rank_open(uint32_t rank, uint32_t size, const char *job, enum numaloc_source source);

/* From now on at most one thread at a time counts messages, so no lock is taken. */
void numaloc_rank_one_thread_at_a_time(void);

/* Counts one message. Thread-safe, keeps errno, allocates nothing. */
void numaloc_rank_message(int peer, uint64_t bytes, enum numaloc_kind kind);

/* Counts `events` messages of `bytes` together. */
void numaloc_rank_messages(int peer, uint64_t events, uint64_t bytes, enum numaloc_kind kind);

/* Writes what is buffered and the totals; messages may still follow (the last totals count). */
void numaloc_rank_close(void);

/* Appends a block whose payload is these pieces (at most 500), all or nothing. `start`, `end`: CLOCK_MONOTONIC, ns. */
struct iovec;
int numaloc_rank_append(uint32_t type, uint64_t start, uint64_t end, struct iovec *pieces, int count);

/* Whether a file is open: otherwise wrappers skip their work. */
int numaloc_rank_is_open(void);

#endif
