/* Join of two tables by hash: all threads insert their share of the first table into one hash table with chains, then
 * look up their share of the second.
 *
 * Communication: entries that any thread inserted are read by all, at random.
 * Pages: the tables are each thread's own by blocks; the buckets are used by all threads equally.
 * Usage: hash_join [ROWS=300000] [LOOKUPS=600000] */
#include "../workload.h"

struct row {
    uint64_t key, value;
    long next;
};

static uint64_t hash(uint64_t key)
{
    key ^= key >> 31;
    key *= 0x9e3779b97f4a7c15u;
    return key ^ key >> 29;
}

int main(int argc, char **argv)
{
    long rows = argument(argc, argv, 1, 300000), lookups = argument(argc, argv, 2, 600000);
    long buckets = 1;
    while (buckets < rows)
        buckets *= 2;
    struct row *row = pages((size_t)rows * sizeof *row);
    long *head = pages((size_t)buckets * sizeof *head);
    uint64_t *probe = pages((size_t)lookups * sizeof *probe);
    uint64_t sum = 0;
    long wrong = 0;
#pragma omp parallel reduction(+ : sum, wrong)
    {
#pragma omp for schedule(static)
        for (long b = 0; b < buckets; b++)
            head[b] = -1;
#pragma omp for schedule(static)
        for (long i = 0; i < lookups; i++)
            probe[i] = hash((uint64_t)i) % (uint64_t)rows;
#pragma omp for schedule(static)
        for (long i = 0; i < rows; i++) {
            row[i].key = (uint64_t)i, row[i].value = 3 * (uint64_t)i;
            long *bucket = &head[hash(row[i].key) & (uint64_t)(buckets - 1)];
            row[i].next = __atomic_exchange_n(bucket, i, __ATOMIC_ACQ_REL);
        }
#pragma omp for schedule(static)
        for (long i = 0; i < lookups; i++) {
            long at = head[hash(probe[i]) & (uint64_t)(buckets - 1)];
            while (at >= 0 && row[at].key != probe[i])
                at = row[at].next;
            wrong += at < 0;
            sum += at < 0 ? 0 : row[at].value;
        }
    }
    return finish("hash_join", wrong, sum);
}
