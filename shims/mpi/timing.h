/* Time that a rank spends in MPI: sums by operation, communicator, call site and size, and events by which the times of
 * a message's sender and receiver are compared later (docs/formats/mpi-rank-file.md). Used by the wrappers
 * (profiling.c); knows nothing of MPI's types.
 *
 * Memory is static: 2,048 rows of sums, 4,096 events before they are written, 8,192 channels, 8,192 pending requests.
 * What finds no room is still timed, but its partner is not looked for. After every 65,536 written events half of the
 * messages are left out from then on. Which ones follows from the channel and the number of the message in it, so
 * sender and receiver keep the same ones. */
#ifndef NUMALOC_TIMING_H
#define NUMALOC_TIMING_H

#include <stdint.h>

/* The values are part of the file format. */
enum numaloc_event {
    NUMALOC_SEND = 1,       /* a message was sent at `posted`; begin to end: the sending call, if it blocks */
    NUMALOC_SEND_WAIT = 2,  /* a wait for the end of a send */
    NUMALOC_RECEIVE = 3,    /* a receive was posted at `posted`; begin to end: the call that waited for it */
    NUMALOC_PROBE = 4,      /* a call that waited for the message without receiving it */
    NUMALOC_COLLECTIVE_CALL = 5, /* a collective was entered at `posted`; begin to end: the call that waited */
};

/* A call of the program. */
struct numaloc_call {
    uint64_t begin, end; /* ticks */
    void *site;
    uint32_t operation, row;
};

/* A message that a request stands for. */
struct numaloc_message {
    uint64_t channel, posted;
    uint32_t sequence;
    int32_t peer, from, tag; /* from, tag: as asked for, of a receive that does not name its channel */
    intptr_t comm;           /* of such a receive */
    uint8_t kind;            /* NUMALOC_SEND, _RECEIVE or _COLLECTIVE_CALL; 0: none */
    uint8_t open;            /* does not name its channel */
};

/* Starts; before, nothing is counted. */
void numaloc_time_start(void);
extern int numaloc_time_on;
static inline int numaloc_time_is_on(void) { return __atomic_load_n(&numaloc_time_on, __ATOMIC_RELAXED); }
/* From now on at most one thread at a time counts, so no lock is taken. */
void numaloc_time_one_thread_at_a_time(void);
extern int numaloc_time_alone;
void numaloc_time_really_lock(void);
void numaloc_time_really_unlock(void);
static inline void numaloc_time_lock(void) {
    if (!__atomic_load_n(&numaloc_time_alone, __ATOMIC_RELAXED)) numaloc_time_really_lock();
}
static inline void numaloc_time_unlock(void) {
    if (!__atomic_load_n(&numaloc_time_alone, __ATOMIC_RELAXED)) numaloc_time_really_unlock();
}

/* CLOCK_MONOTONIC in nanoseconds. */
uint64_t numaloc_time_clock(void);
/* Whether the time-stamp counter is used. */
extern int numaloc_time_steady;
/* A clock: the processor's time-stamp counter if it is steady, else nanoseconds. */
static inline uint64_t numaloc_time_now(void) {
#ifdef __x86_64__
    if (__builtin_expect(numaloc_time_steady, 1)) return __builtin_ia32_rdtsc();
#endif
    return numaloc_time_clock();
}
/* The number of an operation, by its name, which must be static. */
uint32_t numaloc_time_operation(const char *name);

/* The functions below need the lock. */

/* Adds a call that has ended, in a communicator of that many ranks (0: none). */
void numaloc_time_add(struct numaloc_call *call, uint32_t ranks, uint64_t bytes);
/* The channel of messages between two ranks of the world with a tag in a communicator. */
uint64_t numaloc_time_channel(uint64_t comm, int from, int to, int tag);
/* The number of the next message in a channel, from 0; UINT32_MAX if there is no room for the channel. */
uint32_t numaloc_time_next_sent(uint64_t channel);
uint32_t numaloc_time_next_received(uint64_t channel, int probed);
/* Keeps an event of a call, which was added before; `waited`: the call waited for it. */
void numaloc_time_event(const struct numaloc_call *call, enum numaloc_event kind, uint64_t channel, uint32_t sequence,
                        int peer, uint64_t posted, int waited);
/* Remembers what a request stands for; takes it back, with kind 0 if it is not known; whether it is open. */
void numaloc_time_pend(intptr_t request, const struct numaloc_message *message);
struct numaloc_message numaloc_time_take(intptr_t request);
int numaloc_time_any_open(void);

/* Writes events and sums; calls may still follow (the last sums count). */
void numaloc_time_write(void);

#endif
