/* See timing.h. */
#define _GNU_SOURCE
#include "timing.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#ifdef __x86_64__
#include <cpuid.h>
#endif

#include "rank_file.h"

#define ROWS 2048u
#define ROW_SLOTS (2 * ROWS)
#define EVENTS 4096u
#define EVENTS_PER_LEVEL 65536u /* after this number of written events, half of the messages are left out */
#define CHANNELS 8192u
#define PENDING_SETS 1024u
#define PENDING_WAYS 8u
#define OPERATIONS 256u
#define OBJECTS 64u
#define PROBES 16u
#define FIRST_SUMS_NS 1000000000u /* the sums are written after 1 s, then whenever the run is twice as long */

#define BLOCK_EVENTS 3u
#define BLOCK_TIMES 4u

struct row {
    uint64_t site, what; /* what: operation, class of size, ranks */
    uint64_t calls, bytes, ticks, partners;
};

struct event { /* 48 bytes, as in the file (little endian); ticks until it is written, then nanoseconds */
    uint64_t channel;
    uint32_t sequence, peer;
    uint64_t posted, begin, end;
    uint32_t row;
    uint8_t kind, level;
    uint16_t zero;
};
_Static_assert(sizeof(struct event) == 48, "file format");

struct times { /* beginning of a block of sums, as in the file */
    uint64_t begin, end; /* of MPI in this process, CLOCK_MONOTONIC */
    uint64_t untracked;  /* messages without room for their channel or request */
    uint32_t rows, operations, objects, text;
};
_Static_assert(sizeof(struct times) == 40, "file format");

struct sum { /* one row, as in the file */
    uint64_t offset; /* of the call site in its object */
    uint32_t object, operation, ranks, size_class;
    uint64_t calls, bytes, nanoseconds, partners;
};
_Static_assert(sizeof(struct sum) == 56, "file format");

static struct row rows[ROWS];
static uint16_t row_slots[ROW_SLOTS];
static uint32_t used_rows;
static struct event events[EVENTS];
static uint32_t used_events, events_of_level, level, events_per_level = EVENTS_PER_LEVEL;
static struct {
    uint64_t channel;
    uint32_t sent, received;
} channels[CHANNELS];
static struct {
    intptr_t request;
    struct numaloc_message message;
} pending[PENDING_SETS][PENDING_WAYS];
static int open_receives;
static const char *operations[OPERATIONS];
static uint32_t used_operations = 1; /* 0: none */
static uint64_t untracked, sums_due;
static uint64_t first_ticks, first_ns;
int numaloc_time_steady, numaloc_time_on, numaloc_time_alone;
static atomic_flag busy = ATOMIC_FLAG_INIT;

void numaloc_time_one_thread_at_a_time(void) { __atomic_store_n(&numaloc_time_alone, 1, __ATOMIC_RELAXED); }

void numaloc_time_really_lock(void) {
    for (unsigned spins = 0; atomic_flag_test_and_set_explicit(&busy, memory_order_acquire); spins++)
        if (spins > 100) sched_yield();
}

void numaloc_time_really_unlock(void) { atomic_flag_clear_explicit(&busy, memory_order_release); }

uint64_t numaloc_time_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Whether the counter runs at one rate in all states of the processor (CPUID: invariant TSC). */
static int is_steady(void) {
#ifdef __x86_64__
    unsigned a, b, c, d;
    return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & 1u << 8);
#else
    return 0;
#endif
}

/* The counter and the clock at one moment: of some tries the one with the shortest distance. */
static void both(uint64_t *ticks, uint64_t *ns) {
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < 5; i++) {
        uint64_t before = numaloc_time_now(), clock = numaloc_time_clock(), after = numaloc_time_now();
        if (after - before >= best) continue;
        best = after - before;
        *ticks = before + best / 2;
        *ns = clock;
    }
}

/* Nanoseconds per tick since the start; and the present moment. */
static double rate(uint64_t *ticks, uint64_t *ns) {
    both(ticks, ns);
    if (!numaloc_time_steady) return 1;
    return *ticks > first_ticks ? (double)(*ns - first_ns) / (double)(*ticks - first_ticks) : 0;
}

void numaloc_time_start(void) {
    if (!numaloc_rank_is_open() || numaloc_time_is_on()) return;
    const char *text = getenv("NUMALOC_MPI_KEEP");
    uint64_t chosen = text ? strtoull(text, NULL, 10) : 0;
    if (chosen > 0 && chosen < 1u << 30) events_per_level = (uint32_t)chosen;
    numaloc_time_steady = is_steady();
    both(&first_ticks, &first_ns);
    sums_due = first_ns + FIRST_SUMS_NS;
    __atomic_store_n(&numaloc_time_on, 1, __ATOMIC_RELEASE);
}

uint32_t numaloc_time_operation(const char *name) {
    numaloc_time_lock();
    uint32_t number = 1;
    while (number < used_operations && strcmp(operations[number], name) != 0) number++;
    if (number == used_operations) {
        if (number < OPERATIONS) operations[used_operations++] = name;
        else number = 0;
    }
    numaloc_time_unlock();
    return number;
}

static uint64_t mixed(uint64_t value) {
    value *= 0x9e3779b97f4a7c15u;
    value ^= value >> 32;
    value *= 0xd6e8feb86659fd93u;
    return value ^ value >> 32;
}

uint64_t numaloc_time_channel(uint64_t comm, int from, int to, int tag) {
    uint64_t ends = (uint64_t)(uint32_t)from << 32 | (uint32_t)to;
    uint64_t channel = mixed(comm + mixed(ends) + (uint64_t)(uint32_t)tag * 0xff51afd7ed558ccdu);
    return channel ? channel : 1;
}

/* The place of a channel; NULL if there is no room near its own place. */
static __typeof__(&channels[0]) place(uint64_t channel) {
    for (uint32_t probe = 0; probe < PROBES; probe++) {
        __typeof__(&channels[0]) at = &channels[(channel + probe) & (CHANNELS - 1)];
        if (at->channel == channel) return at;
        if (at->channel == 0) {
            at->channel = channel;
            return at;
        }
    }
    untracked++;
    return NULL;
}

uint32_t numaloc_time_next_sent(uint64_t channel) {
    __typeof__(&channels[0]) at = place(channel);
    return at ? at->sent++ : UINT32_MAX;
}

uint32_t numaloc_time_next_received(uint64_t channel, int probed) {
    __typeof__(&channels[0]) at = place(channel);
    return at == NULL ? UINT32_MAX : probed ? at->received : at->received++;
}

static uint32_t size_class(uint64_t bytes) { return bytes ? 64u - (uint32_t)__builtin_clzll(bytes) : 0; }

/* The row of a call; rows without room are those of their operation without site and size, or the last one. */
static uint32_t row_of(uint64_t site, uint64_t what) {
    uint32_t first = (uint32_t)(mixed(site + what * 0xc2b2ae3d27d4eb4fu) >> 40);
    for (uint32_t probe = 0; probe < ROW_SLOTS; probe++) {
        uint16_t *slot = &row_slots[(first + probe) & (ROW_SLOTS - 1)];
        if (*slot != 0) {
            struct row *row = &rows[*slot - 1];
            if (row->site == site && row->what == what) return (uint32_t)*slot - 1;
            continue;
        }
        /* The last rows are for operations whose sites have no room. */
        if (used_rows >= (site ? ROWS - OPERATIONS - 1 : ROWS)) break;
        rows[used_rows] = (struct row){site, what, 0, 0, 0, 0};
        *slot = (uint16_t)++used_rows;
        return used_rows - 1;
    }
    return site ? row_of(0, what >> 40 << 40) : ROWS - 1;
}

/* ---- writing ---- */

static void write_events(void) {
    if (used_events == 0) return;
    uint64_t ticks, now;
    double per_tick = rate(&ticks, &now);
    for (uint32_t i = 0; i < used_events; i++) {
        uint64_t *const times[] = {&events[i].posted, &events[i].begin, &events[i].end};
        for (int k = 0; k < 3; k++) *times[k] = now - (uint64_t)((double)(ticks - *times[k]) * per_tick);
    }
    struct iovec piece[2] = {{events, used_events * sizeof *events}};
    (void)numaloc_rank_append(BLOCK_EVENTS, first_ns, now, piece, 1);
    events_of_level += used_events;
    used_events = 0;
    if (events_of_level >= events_per_level && level < 31) {
        level++;
        events_of_level = 0;
    }
}

/* The number of an object's name in `objects`, which is added if it is new. */
static uint32_t object_of(const char *name, const char **objects, uint32_t *known) {
    uint32_t at = 0;
    while (at < *known && strcmp(objects[at], name) != 0) at++;
    if (at < *known) return at;
    if (at >= OBJECTS) return UINT32_MAX;
    objects[(*known)++] = name;
    return at;
}

/* The path of a loaded file: the loader knows the program's own by its first argument only. */
static const char *path_of(const char *name) {
    static char program[4096];
    if (name[0] == '/') return name;
    if (program[0] == 0) {
        ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
        if (length <= 0) return name;
        program[length] = 0;
    }
    return program;
}

static void write_sums(void) {
    static struct sum sums[ROWS]; /* with the lock held */
    uint64_t ticks, now;
    double per_tick = rate(&ticks, &now);
    struct times head = {first_ns, now, untracked, 0, used_operations, 0, 0};
    const char *objects[OBJECTS];
    for (uint32_t i = 0; i < used_rows; i++) {
        const struct row *row = &rows[i];
        struct sum *sum = &sums[head.rows++];
        *sum = (struct sum){0, UINT32_MAX, (uint32_t)(row->what >> 48), (uint32_t)row->what,
                            (uint32_t)(row->what >> 40) & 255, row->calls, row->bytes,
                            (uint64_t)((double)row->ticks * per_tick), row->partners};
        Dl_info where;
        if (row->site && dladdr((void *)row->site, &where) && where.dli_fname) {
            sum->object = object_of(path_of(where.dli_fname), objects, &head.objects);
            sum->offset = row->site - (uint64_t)(uintptr_t)where.dli_fbase;
        }
    }
    struct iovec pieces[3 + OPERATIONS + OBJECTS];
    int count = 0;
    pieces[count++] = (struct iovec){&head, sizeof head};
    pieces[count++] = (struct iovec){sums, head.rows * sizeof *sums};
    for (uint32_t i = 0; i < head.operations; i++) {
        const char *name = i ? operations[i] : "";
        pieces[count++] = (struct iovec){(void *)name, strlen(name) + 1};
    }
    for (uint32_t i = 0; i < head.objects; i++)
        pieces[count++] = (struct iovec){(void *)objects[i], strlen(objects[i]) + 1};
    for (int i = 2; i < count; i++) head.text += (uint32_t)pieces[i].iov_len;
    (void)numaloc_rank_append(BLOCK_TIMES, first_ns, now, pieces, count);
    sums_due = now + (now - first_ns);
}

void numaloc_time_write(void) {
    if (!numaloc_time_is_on()) return;
    numaloc_time_lock();
    write_events();
    write_sums();
    numaloc_time_unlock();
}

/* ---- counting ---- */

void numaloc_time_add(struct numaloc_call *call, uint32_t ranks, uint64_t bytes) {
    uint64_t what = (uint64_t)call->operation << 48 | (uint64_t)size_class(bytes) << 40 | ranks;
    call->row = row_of((uint64_t)(uintptr_t)call->site, what);
    struct row *row = &rows[call->row];
    row->calls++;
    row->bytes += bytes;
    row->ticks += call->end - call->begin;
}

void numaloc_time_event(const struct numaloc_call *call, enum numaloc_event kind, uint64_t channel, uint32_t sequence,
                        int peer, uint64_t posted, int waited) {
    if (waited) rows[call->row].partners++;
    if (sequence == UINT32_MAX) return;
    if (level > 0 && mixed(channel + sequence) << (64 - level) != 0) return;
    if (used_events >= EVENTS) {
        write_events();
        if (numaloc_time_clock() >= sums_due) write_sums();
    }
    uint32_t at = used_events < EVENTS ? used_events : 0;
    events[at] = (struct event){channel, sequence, (uint32_t)peer, posted, waited ? call->begin : posted,
                                waited ? call->end : posted, call->row, (uint8_t)kind, (uint8_t)level, 0};
    used_events = at + 1;
}

static uint32_t set_of(intptr_t request) { return (uint32_t)(mixed((uint64_t)request) >> 54); }

void numaloc_time_pend(intptr_t request, const struct numaloc_message *message) {
    uint32_t set = set_of(request), way = PENDING_WAYS;
    for (uint32_t i = 0; i < PENDING_WAYS; i++) {
        if (pending[set][i].message.kind == 0) way = way == PENDING_WAYS ? i : way;
        /* The library uses one handle for all requests that have ended at once. */
        else if (pending[set][i].request == request) {
            way = i;
            break;
        }
    }
    if (way == PENDING_WAYS) {
        untracked++;
        return;
    }
    if (pending[set][way].message.kind != 0) open_receives -= pending[set][way].message.open;
    open_receives += message->open;
    pending[set][way].request = request;
    pending[set][way].message = *message;
}

struct numaloc_message numaloc_time_take(intptr_t request) {
    uint32_t set = set_of(request);
    for (uint32_t i = 0; i < PENDING_WAYS; i++)
        if (pending[set][i].request == request && pending[set][i].message.kind != 0) {
            struct numaloc_message message = pending[set][i].message;
            pending[set][i].message.kind = 0;
            open_receives -= message.open;
            return message;
        }
    return (struct numaloc_message){0};
}

int numaloc_time_any_open(void) { return open_receives > 0; }
