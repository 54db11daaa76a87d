/* Statistics of each thread in one array of structures of 24 bytes; AFTER: each on a line of its own. */
#include <pthread.h>
#include <stdio.h>

enum { THREADS = 8, TIMES = 15000 };
struct stats {
    volatile long packets, bytes, errors;
#ifdef AFTER
} __attribute__((aligned(64)));
#else
};
#endif
static struct stats stats[THREADS];

static void *work(void *number)
{
    struct stats *own = &stats[(long)number];
    for (int at = 0; at < TIMES; at++) {
        own->packets++;
        own->bytes += at & 1023;
        if (at % 64 == 0)
            own->errors++;
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    for (long at = 0; at < THREADS; at++)
        pthread_create(&threads[at], NULL, work, (void *)at);
    for (int at = 0; at < THREADS; at++)
        pthread_join(threads[at], NULL);
    printf("%ld\n", stats[0].packets);
    return 0;
}
