/* Threads number what they produce by one counter; AFTER: each takes 64 numbers at once. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 8, EACH = 8000 };
#ifdef AFTER
enum { AT_ONCE = 64 };
#else
enum { AT_ONCE = 1 };
#endif
static struct { _Alignas(64) atomic_long next; } ticket;

static void *work(void *number)
{
    long *made = malloc(sizeof *made * EACH), from = 0, left = 0;
    for (long at = 0; at < EACH; at++) {
        if (!left) {
            from = atomic_fetch_add(&ticket.next, AT_ONCE);
            left = AT_ONCE;
        }
        left--;
        made[at] = from++;
        for (int back = 1; back < 6 && back <= at; back++)
            made[at] ^= made[at - back];
    }
    long last = made[EACH - 1];
    free(made);
    return (void *)(last + (long)number);
}

int main(void)
{
    pthread_t threads[THREADS];
    for (long at = 0; at < THREADS; at++)
        pthread_create(&threads[at], NULL, work, (void *)at);
    for (int at = 0; at < THREADS; at++)
        pthread_join(threads[at], NULL);
    printf("%ld\n", ticket.next);
    return 0;
}
