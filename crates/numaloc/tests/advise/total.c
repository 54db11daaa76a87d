/* Threads add to one total; AFTER: each adds to its own and once to the shared one. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

enum { THREADS = 8, TIMES = 20000 };
static atomic_long total;

static void *work(void *number)
{
    long own = 0;
    unsigned long state = (long)number + 1;
    for (int at = 0; at < TIMES; at++) {
        state = state * 6364136223846793005ul + 1442695040888963407ul;
#ifdef AFTER
        own += state >> 60;
#else
        atomic_fetch_add(&total, state >> 60);
#endif
    }
    if (own)
        atomic_fetch_add(&total, own);
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    for (long at = 0; at < THREADS; at++)
        pthread_create(&threads[at], NULL, work, (void *)at);
    for (int at = 0; at < THREADS; at++)
        pthread_join(threads[at], NULL);
    printf("%ld\n", total);
    return 0;
}
