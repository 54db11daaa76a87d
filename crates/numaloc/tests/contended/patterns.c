// patterns PATTERN THREADS TURNS: threads that use lines so that it is known how often these would move between caches
// if all ran at the same time. Prints the address and the bytes of the lines, the transfers, and those by false sharing.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 64, WORDS = 512, MOST_THREADS = 256 };
// The barrier's line, in which run-time code synchronises, has plain variables that all turns load.
static pthread_barrier_t barrier;
static long threads, turns;
static long (*turn)(long me, long at);
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static _Atomic long spin __attribute__((aligned(LINE)));
static struct { _Atomic long word[WORDS]; char after[LINE]; } shared __attribute__((aligned(LINE)));
static volatile long sums[8 * MOST_THREADS] __attribute__((aligned(LINE)));

static long load(long at) { return atomic_load_explicit(&shared.word[at], memory_order_relaxed); }
static long store(long at, long value) { atomic_store_explicit(&shared.word[at], value, memory_order_relaxed); return 0; }
static long add(long at, long value) { return atomic_fetch_add(&shared.word[at], value); }
static long count(long at) { volatile long *word = (volatile long *)&shared.word[at]; return *word = *word + 1; }

static long atomic_counter(long me, long at) { return add(0, 1); }
static long plain_counter(long me, long at) { return count(0); }
static long counters(long me, long at) { return count(me); }
static long counters_apart(long me, long at) { return count(8 * (me % 64)); }
static long atomic_counters(long me, long at) { return add(me, 1); }
static long pairs(long me, long at) { return count(8 * (me / 2) + me % 2); }
static long half_counts(long me, long at) { return me % 2 ? at : count(0); }
static long signal(long me, long at) { return me ? load(0) : store(0, at); }
static long neighbour(long me, long at) { return me ? load(0) : store(1, at); }
static long only_loads(long me, long at) { return load(at % 8); }
static long batches(long me, long at) { return at % 16 == 15 ? add(0, 16) : at; }
static long exchange(long me, long at)
{
    long old = load(0);
    while (!atomic_compare_exchange_weak(&shared.word[0], &old, old + 1)) continue;
    return old;
}
static long locked(long me, long at)
{
    pthread_mutex_lock(&mutex);
    long sum = count(0) + count(1);
    pthread_mutex_unlock(&mutex);
    return sum;
}
static long spinning(long me, long at)
{
    while (atomic_exchange_explicit(&spin, 1, memory_order_acquire)) continue;
    long sum = count(0) + count(1);
    atomic_store_explicit(&spin, 0, memory_order_release);
    return sum;
}
static long histogram(long me, long at) { return add((at * 7 + me) % 8, 1); }
static long two_lines(long me, long at) { return count(at % 2 * 8); }
static long four_flags(long me, long at) { return me < 4 ? store(me, at) : at; }

static void *work(void *given)
{
    long me = (long)given, sum = 0;
    pthread_barrier_wait(&barrier);
    for (long at = 0; at < turns; at++)
        sum += turn(me, at);
    sums[8 * me] = sum;
    return NULL;
}

// Transfers of the increments of `count` threads of a line.
static double of_line(long count) { return count > 0 ? (double)turns * (count - 1) : 0; }
static double of_all(void) { return of_line(threads); }
static double of_none(void) { return 0; }
static double of_lines(void) { return threads / 8 * of_line(8) + of_line(threads % 8); }
static double of_pairs(void) { return threads / 2 * of_line(2); }
static double of_half(void) { return of_line((threads + 1) / 2); }
static double of_batches(void) { return of_all() / 16; }
static double of_four(void) { return of_line(threads < 4 ? threads : 4); }
// Half of as many loads as stores of another thread find a new value; a store mostly follows another thread's load.
static double of_signal(void) { return (threads - 1) * (turns / 2.0 + (double)turns / threads); }

static const struct { const char *name; long (*turn)(long, long); double (*transfers)(void); int by_false; } patterns[] = {
    { "atomic counter", atomic_counter, of_all, 0 },
    { "plain counter", plain_counter, of_all, 0 },
    { "counters in lines", counters, of_lines, 1 },
    { "counters apart", counters_apart, of_none, 0 },
    { "atomic counters in lines", atomic_counters, of_lines, 1 },
    { "pairs in lines", pairs, of_pairs, 1 },
    { "half of them count", half_counts, of_half, 0 },
    { "one stores, all load", signal, of_signal, 0 },
    { "one stores next to what all load", neighbour, of_signal, 1 },
    { "all load", only_loads, of_none, 0 },
    { "batches of sixteen", batches, of_batches, 0 },
    { "compare and exchange", exchange, of_all, 0 },
    { "a mutex", locked, of_all, 0 },
    { "a lock of its own", spinning, of_all, 0 },
    { "bins of a histogram", histogram, of_all, 0 },
    { "two lines in turn", two_lines, of_all, 0 },
    { "flags of four", four_flags, of_four, 1 },
};

int main(int argc, char **argv)
{
    pthread_t created[MOST_THREADS];
    unsigned at = 0;
    while (strcmp(patterns[at].name, argv[1])) at++;
    turn = patterns[at].turn, threads = atol(argv[2]), turns = atol(argv[3]);
    pthread_barrier_init(&barrier, NULL, threads);
    for (long i = 0; i < threads; i++) pthread_create(&created[i], NULL, work, (void *)i);
    for (long i = 0; i < threads; i++) pthread_join(created[i], NULL);
    double transfers = patterns[at].transfers();
    printf("%lu %d %.0f %.0f\n", (unsigned long)shared.word, WORDS * 8, transfers, patterns[at].by_false * transfers);
    return 0;
}
