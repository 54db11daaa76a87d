/* A pipeline of POSIX threads with queues: a reader makes blocks, three stages of WORKERS threads each work on them, a
 * writer adds them up. Between two stages is one bounded queue with a lock.
 *
 * Communication: a worker reads blocks that any worker of the stage before wrote, so threads of neighbouring stages
 * communicate, all with all; the locks of the queues are taken by all of two stages.
 * Pages: the reader allocates and touches all blocks.
 * Usage: pipeline [BLOCKS=400] [CELLS=4096] [WORKERS=OMP_NUM_THREADS/3] */
#include <pthread.h>
#include "../workload.h"

enum { DEPTH = 32, STAGES = 3 };

struct queue {
    pthread_mutex_t lock;
    pthread_cond_t filled, emptied;
    uint64_t *block[DEPTH];
    long first, count, writers;
};

static struct queue queues[STAGES + 1];
static long blocks, cells, workers;

static void put(struct queue *q, uint64_t *block)
{
    pthread_mutex_lock(&q->lock);
    while (q->count == DEPTH)
        pthread_cond_wait(&q->emptied, &q->lock);
    q->block[(q->first + q->count++) % DEPTH] = block;
    pthread_cond_signal(&q->filled);
    pthread_mutex_unlock(&q->lock);
}

/* The next block; null when all writers have left and the queue is empty. */
static uint64_t *take(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
    while (q->count == 0 && q->writers > 0)
        pthread_cond_wait(&q->filled, &q->lock);
    uint64_t *block = NULL;
    if (q->count > 0) {
        block = q->block[q->first];
        q->first = (q->first + 1) % DEPTH;
        q->count--;
        pthread_cond_signal(&q->emptied);
    }
    pthread_mutex_unlock(&q->lock);
    return block;
}

static void leave(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
    if (--q->writers == 0)
        pthread_cond_broadcast(&q->filled);
    pthread_mutex_unlock(&q->lock);
}

static void *read_blocks(void *unused)
{
    (void)unused;
    for (long b = 0; b < blocks; b++) {
        uint64_t *block = pages((size_t)cells * sizeof *block);
        for (long i = 0; i < cells; i++)
            block[i] = (uint64_t)(b + i);
        put(&queues[0], block);
    }
    leave(&queues[0]);
    return NULL;
}

static void *work(void *which)
{
    long stage = (long)which;
    for (uint64_t *block; (block = take(&queues[stage]));) {
        for (int pass = 0; pass < 2; pass++)
            for (long i = 0; i < cells; i++)
                block[i] += 1;
        put(&queues[stage + 1], block);
    }
    leave(&queues[stage + 1]);
    return NULL;
}

int main(int argc, char **argv)
{
    long most = (omp_get_max_threads() - 2) / STAGES;
    blocks = argument(argc, argv, 1, 400), cells = argument(argc, argv, 2, 4096);
    workers = argument(argc, argv, 3, most > 0 ? most : 1);
    for (int q = 0; q <= STAGES; q++) {
        pthread_mutex_init(&queues[q].lock, NULL);
        pthread_cond_init(&queues[q].filled, NULL);
        pthread_cond_init(&queues[q].emptied, NULL);
        queues[q].writers = q == 0 ? 1 : workers;
    }
    pthread_t *thread = calloc((size_t)(STAGES * workers + 1), sizeof *thread);
    if (!thread)
        return 1;
    pthread_create(&thread[0], NULL, read_blocks, NULL);
    for (long at = 0; at < STAGES * workers; at++)
        pthread_create(&thread[1 + at], NULL, work, (void *)(at / workers));
    uint64_t sum = 0;
    long taken = 0;
    for (uint64_t *block; (block = take(&queues[STAGES])); taken++) {
        for (long i = 0; i < cells; i++)
            sum += block[i];
        free(block);
    }
    for (long at = 0; at <= STAGES * workers; at++)
        pthread_join(thread[at], NULL);
    uint64_t b = (uint64_t)blocks, c = (uint64_t)cells;
    uint64_t expected = b * (b - 1) / 2 * c + c * (c - 1) / 2 * b + 2 * STAGES * b * c;
    int wrong = taken != blocks || sum != expected;
    printf("pipeline: %ld workers a stage, %ld blocks, %s\n", workers, taken, wrong ? "wrong" : "ok");
    return wrong;
}
