/* The main thread fills a table, then four threads, each with a quarter of it, go through it again and again. By first touch all pages
 * are on the node where the main thread ran. */
#include <pthread.h>
#include <stddef.h>
enum { THREADS = 4, WORDS = 1 << 15, ROUNDS = 40 };
static long table[THREADS][WORDS] __attribute__((aligned(4096)));

static void *work(void *part)
{
    long *own = table[(size_t)part];
    for (int round = 0; round < ROUNDS; round++)
        for (long at = 0; at < WORDS; at++)
            ((volatile long *)own)[at] += round;
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    for (size_t part = 0; part < THREADS; part++)
        for (long at = 0; at < WORDS; at++)
            ((volatile long *)table[part])[at] = at;
    for (size_t part = 0; part < THREADS; part++)
        pthread_create(&threads[part], NULL, work, (void *)part);
    for (size_t part = 0; part < THREADS; part++)
        pthread_join(threads[part], NULL);
    return 0;
}
