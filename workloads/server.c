/* A server: a thread for each of WORKERS places takes REQUESTS requests, ends, and is replaced, for SECONDS. A request
 * allocates memory, fills it, sorts and checks it, and frees it; the place's own table is read and written in between.
 *
 * Communication: through the tables, from a thread to the next one of its place; next to none between threads that live.
 * Pages: tables are first touched by the main thread; request memory is new each time.
 * Usage: server [WORKERS=8] [SECONDS=10] [REQUESTS=200] */
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include "workload.h"

enum { TABLE = 1 << 15, REQUEST = 1 << 13 };
static long requests;
static double end;

struct place {
    uint64_t *table;
    long served, wrong;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void request(struct place *of, long number)
{
    /* A mapping of its own, as malloc makes for large amounts: the memory goes back to the kernel. */
    size_t bytes = REQUEST * sizeof(uint64_t);
    uint64_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    uint64_t sum = 0, again = 0;
    for (long i = 0; i < REQUEST; i++)
        sum += memory[i] = of->table[(i * 37 + number) % TABLE] * 2654435761u % 1000003u;
    qsort(memory, REQUEST, sizeof *memory, ascending);
    for (long i = 0; i < REQUEST; i++) {
        again += memory[i];
        of->wrong += i > 0 && memory[i - 1] > memory[i];
        of->table[(i * 37 + number) % TABLE] += 1;
    }
    of->wrong += sum != again;
    munmap(memory, bytes);
    of->served++;
}

static void *worker(void *argument)
{
    struct place *of = argument;
    for (long i = 0; i < requests && now() < end; i++)
        request(of, of->served);
    return NULL;
}

int main(int argc, char **argv)
{
    long workers = argument(argc, argv, 1, 8), seconds = argument(argc, argv, 2, 10), served = 0, wrong = 0, threads = 0;
    requests = argument(argc, argv, 3, 200);
    struct place *place = calloc((size_t)workers, sizeof *place);
    pthread_t *thread = calloc((size_t)workers, sizeof *thread);
    end = now() + (double)seconds;
    for (long at = 0; at < workers; at++) {
        place[at].table = pages(TABLE * sizeof(uint64_t));
        for (long i = 0; i < TABLE; i++)
            place[at].table[i] = (uint64_t)i;
    }
    for (long round = 0; now() < end; round++) {
        for (long at = 0; at < workers; at++) {
            if (round > 0)
                pthread_join(thread[at], NULL);
            pthread_create(&thread[at], NULL, worker, &place[at]);
            threads++;
        }
    }
    for (long at = 0; at < workers; at++) {
        pthread_join(thread[at], NULL);
        served += place[at].served;
        wrong += place[at].wrong;
    }
    fprintf(stderr, "server: %ld threads served %ld requests\n", threads, served);
    printf("server: %ld places, %ld wrong\n", workers, wrong);
    return wrong != 0;
}
