/* Writes the rank file. This code runs inside the user's program, so it may lose data
 * (and report that in the totals) but never block, abort, print, or change errno. */
#define _GNU_SOURCE
#include "host_name.h"
#include "rank_file.h"
#include "timing.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define ENTRIES 8192u               /* (peer, kind) pairs per slice before an early write */
#define SLOTS (2 * ENTRIES)         /* hash slots; a power of two */
#define DEFAULT_SLICE_NS 1000000u   /* 1 ms */
#define SLICES_PER_LENGTH 4096u     /* after this number of written slices, their length doubles */
#define BYTES_PER_LENGTH (8u << 20) /* likewise after this number of written bytes */
#define BLOCK_SLICE 1u
#define BLOCK_END 2u
#define MOST_PIECES 500 /* of a block; the kernel accepts 1,024 */

struct entry { /* 24 bytes, as in the file (little endian) */
    uint32_t peer, kind;
    uint64_t events, bytes;
};
_Static_assert(sizeof(struct entry) == 24, "file format");

struct block { /* 24 bytes, as in the file */
    uint32_t type, payload;
    uint64_t start, end;
};
_Static_assert(sizeof(struct block) == 24, "file format");

struct totals { /* payload of an END block */
    uint64_t amount[NUMALOC_KINDS][2]; /* events, bytes */
    uint64_t dropped;                  /* events that could not be written */
};

static struct entry entries[ENTRIES];
static uint16_t slot_of[SLOTS]; /* index into entries + 1; 0: free */
static uint32_t used;
static struct totals totals;
static uint64_t slice_ns, slice_start, slice_end;
static uint64_t slices_written, bytes_written;
static int64_t clock_offset; /* file time - CLOCK_MONOTONIC */
/* The processor's time-stamp counter is a cheap test whether the slice still lasts (10 ns instead of 23): it does for
 * `ticks_left` after `ticks_at`, an underestimate. The clock decides, and is read at least every MAX_UNCLOCKED
 * messages. */
#define MAX_UNCLOCKED 256u
static uint64_t ticks_at, ticks_left, first_ticks, first_now;
static unsigned unclocked;
static int file = -1;
static off_t file_end;
static uint32_t crc_table[256];
static atomic_int enabled;
static atomic_flag busy = ATOMIC_FLAG_INIT;
/* Set if at most one thread at a time calls (MPI below MPI_THREAD_MULTIPLE), so that no lock is needed. A locked
 * instruction would wait for all earlier stores of the thread, some of which, after a message was received, wait for
 * the other core. A program that breaks the rule may only lose counts: every index into the tables is checked after
 * reading. */
static atomic_int one_at_a_time;

void numaloc_rank_one_thread_at_a_time(void) { atomic_store_explicit(&one_at_a_time, 1, memory_order_relaxed); }

static void lock(void) {
    for (unsigned spins = 0; atomic_flag_test_and_set_explicit(&busy, memory_order_acquire); spins++)
        if (spins > 100) sched_yield();
}

static void unlock(void) { atomic_flag_clear_explicit(&busy, memory_order_release); }

static uint64_t nanoseconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t ticks(void) {
#ifdef __x86_64__
    return __builtin_ia32_rdtsc();
#else
    return 0; /* the clock is read every time */
#endif
}

static uint32_t crc(uint32_t sum, const void *data, size_t length) {
    const uint8_t *byte = data;
    for (sum = ~sum; length--; byte++) sum = crc_table[(sum ^ *byte) & 255] ^ sum >> 8;
    return ~sum;
}

/* Appends the pieces and their checksum, all or nothing; keeps errno. */
static int append(struct iovec *pieces, int count) {
    int saved_errno = errno, failed = 0;
    uint32_t sum = 0;
    ssize_t length = sizeof sum;
    for (int i = 0; i < count; i++) {
        sum = crc(sum, pieces[i].iov_base, pieces[i].iov_len);
        length += (ssize_t)pieces[i].iov_len;
    }
    pieces[count] = (struct iovec){&sum, sizeof sum};
    ssize_t written;
    do written = pwritev(file, pieces, count + 1, file_end);
    while (written < 0 && errno == EINTR);
    if (written != length) {
        /* Disk full or quota: remove the partial block, so that the next block can still be written. */
        if (written > 0 && ftruncate(file, file_end) != 0) atomic_store(&enabled, 0);
        failed = -1;
    } else {
        file_end += length;
        bytes_written += (uint64_t)length;
    }
    errno = saved_errno;
    return failed;
}

/* Writes the slice's sums and empties the table. Called with the lock held. */
static void write_slice(void) {
    uint32_t count = used;
    if (count == 0) return;
    struct block block = {BLOCK_SLICE, count * (uint32_t)sizeof(struct entry), slice_start, slice_end};
    struct iovec pieces[3] = {{&block, sizeof block}, {entries, block.payload}};
    int failed = append(pieces, 2);
    for (uint32_t i = 0; i < count; i++) {
        if (failed) {
            totals.dropped += entries[i].events;
        } else {
            totals.amount[entries[i].kind][0] += entries[i].events;
            totals.amount[entries[i].kind][1] += entries[i].bytes;
        }
    }
    memset(slot_of, 0, sizeof slot_of);
    used = 0;
    slices_written++;
    if (slices_written >= SLICES_PER_LENGTH || bytes_written >= BYTES_PER_LENGTH) {
        slice_ns *= 2;
        slices_written = bytes_written = 0;
    }
}

/* Begins a new slice if the last one is over. Called with the lock held. */
static void start_slice_if_due(void) {
    uint64_t now = nanoseconds(CLOCK_MONOTONIC) + (uint64_t)clock_offset;
    unclocked = 0;
    if (now >= slice_end) {
        write_slice();
        /* Multiples of the length, so that the slices of all ranks coincide. */
        slice_start = now - now % slice_ns;
        slice_end = slice_start + slice_ns;
    }
    ticks_at = ticks();
    if (first_now == 0) {
        first_now = now;
        first_ticks = ticks_at;
    }
    /* The counter's rate since the first message is precise after a millisecond; the last 2 % of a slice use the
     * clock. */
    uint64_t known = now - first_now;
    ticks_left = known < 1000000u ? 0
                                  : (uint64_t)(0.98 * (double)(slice_end - now) * (double)(ticks_at - first_ticks)
                                               / (double)known);
}

/* The entry of a peer and kind in this slice. Called with the lock held. */
static struct entry *entry_of(uint32_t peer, uint32_t kind) {
    uint32_t first = ((peer * NUMALOC_KINDS + kind) * 2654435761u) >> 7 & (SLOTS - 1);
    for (uint32_t slot = first;; slot = (slot + 1) & (SLOTS - 1)) {
        uint32_t taken = slot_of[slot];
        if (taken != 0) {
            struct entry *entry = &entries[taken - 1];
            if (entry->peer == peer && entry->kind == kind) return entry;
            continue;
        }
        if (used >= ENTRIES) {
            write_slice();
            slot = first;
        }
        uint32_t index = used;
        if (index >= ENTRIES) index = 0;
        used = index + 1;
        slot_of[slot] = (uint16_t)(index + 1);
        entries[index] = (struct entry){peer, kind, 0, 0};
        return &entries[index];
    }
}

static void add(int peer, uint64_t events, uint64_t bytes, enum numaloc_kind kind) {
    if (ticks() - ticks_at >= ticks_left || ++unclocked >= MAX_UNCLOCKED) start_slice_if_due();
    struct entry *entry = entry_of((uint32_t)peer, (uint32_t)kind);
    entry->events += events;
    entry->bytes += bytes;
}

void numaloc_rank_messages(int peer, uint64_t events, uint64_t bytes, enum numaloc_kind kind) {
    if (!atomic_load_explicit(&enabled, memory_order_relaxed) || peer < 0) return;
    if (atomic_load_explicit(&one_at_a_time, memory_order_relaxed)) {
        add(peer, events, bytes, kind);
        return;
    }
    lock();
    add(peer, events, bytes, kind);
    unlock();
}

void numaloc_rank_message(int peer, uint64_t bytes, enum numaloc_kind kind) {
    numaloc_rank_messages(peer, 1, bytes, kind);
}

int numaloc_rank_append(uint32_t type, uint64_t start, uint64_t end, struct iovec *pieces, int count) {
    if (!atomic_load(&enabled) || count < 1 || count > MOST_PIECES) return -1;
    struct iovec all[MOST_PIECES + 2];
    struct block block = {type, 0, start + (uint64_t)clock_offset, end + (uint64_t)clock_offset};
    all[0] = (struct iovec){&block, sizeof block};
    for (int i = 0; i < count; i++) {
        all[i + 1] = pieces[i];
        block.payload += (uint32_t)pieces[i].iov_len;
    }
    if (!atomic_load_explicit(&one_at_a_time, memory_order_relaxed)) lock();
    uint64_t before = bytes_written; /* the length of slices follows from their own bytes */
    int failed = append(all, count + 1);
    bytes_written = before;
    if (!atomic_load_explicit(&one_at_a_time, memory_order_relaxed)) unlock();
    return failed;
}

int numaloc_rank_is_open(void) { return atomic_load_explicit(&enabled, memory_order_relaxed); }

void numaloc_rank_close(void) {
    if (!atomic_load(&enabled)) return;
    numaloc_time_write();
    lock();
    write_slice();
    uint64_t now = nanoseconds(CLOCK_MONOTONIC) + (uint64_t)clock_offset;
    struct block block = {BLOCK_END, sizeof totals, now, now};
    struct iovec pieces[3] = {{&block, sizeof block}, {&totals, sizeof totals}};
    (void)append(pieces, 2);
    unlock();
}

/* A forked child is not the rank: it must not write into the rank's file. */
static void disable_in_child(void) {
    atomic_store(&enabled, 0);
    if (file >= 0) close(file);
    file = -1;
    atomic_flag_clear(&busy);
}

static uint64_t number(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    char *end;
    unsigned long long value = text ? strtoull(text, &end, 10) : 0;
    return text && *text && !*end ? value : otherwise;
}

static void write_header(uint32_t rank, uint32_t size, const char *job, enum numaloc_source source,
                         uint64_t zero) {
    char host[256];
    numaloc_host_name(host, sizeof host);
    cpu_set_t mask;
    CPU_ZERO(&mask);
    uint32_t mask_bytes = sched_getaffinity(0, sizeof mask, &mask) == 0 ? sizeof mask : 0;
    struct {
        char magic[8];
        uint32_t version, length, rank, size, pid, source;
        uint64_t zero, slice_ns;
        uint32_t job, host, mask, reserved;
    } header = {"NLMPIRNK", 2, 0, rank, size, (uint32_t)getpid(), source, zero, slice_ns,
                (uint32_t)strlen(job), (uint32_t)strlen(host), mask_bytes, 0};
    _Static_assert(sizeof header == 64, "file format");
    header.length = (uint32_t)sizeof header + header.job + header.host + header.mask + 4;
    struct iovec pieces[5] = {{&header, sizeof header}, {(void *)job, header.job},
                              {host, header.host}, {&mask, mask_bytes}};
    if (append(pieces, 4) != 0) atomic_store(&enabled, 0);
    bytes_written = 0;
}

void numaloc_rank_open(uint32_t rank, uint32_t size, const char *job, enum numaloc_source source) {
    const char *folder = getenv("NUMALOC_MPI_DIR");
    if (folder == NULL || file >= 0) return;
    int saved_errno = errno;
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t sum = i;
        for (int bit = 0; bit < 8; bit++) sum = sum & 1 ? 0xedb88320u ^ sum >> 1 : sum >> 1;
        crc_table[i] = sum;
    }
    char path[4096];
    uint64_t started = nanoseconds(CLOCK_REALTIME);
    int length = snprintf(path, sizeof path, "%s/rank-%u-%u-%llx.nlmpi", folder, rank, (unsigned)getpid(),
                          (unsigned long long)started);
    if (length > 0 && (size_t)length < sizeof path)
        file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file >= 0) {
        slice_ns = number("NUMALOC_MPI_SLICE", DEFAULT_SLICE_NS);
        if (slice_ns == 0) slice_ns = DEFAULT_SLICE_NS;
        uint64_t zero = number("NUMALOC_MPI_T0", started);
        if (zero > started) zero = started; /* a host whose clock lags */
        clock_offset = (int64_t)(started - nanoseconds(CLOCK_MONOTONIC) - zero);
        atomic_store(&enabled, 1);
        write_header(rank, size, job, source, zero);
        pthread_atfork(NULL, NULL, disable_in_child);
    }
    errno = saved_errno;
}

/* For programs that exit normally without MPI_Finalize. */
__attribute__((destructor)) static void close_at_exit(void) { numaloc_rank_close(); }
