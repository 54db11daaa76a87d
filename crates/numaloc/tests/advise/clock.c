/* A buffer pool: threads look for a victim with one clock hand that all of them move; AFTER: each moves the hand by 64
   frames at once and searches these. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

enum { THREADS = 8, FRAMES = 1 << 12, VICTIMS = 12000 };
#ifdef AFTER
enum { AT_ONCE = 64 };
#else
enum { AT_ONCE = 1 };
#endif
static struct { _Alignas(64) atomic_ulong at; } hand;
static struct { _Alignas(64) unsigned char uses; } frames[FRAMES];
static struct { _Alignas(64) unsigned long found; } found[THREADS];

static void *work(void *number)
{
    long id = (long)number;
    unsigned long from = 0, left = 0;
    for (int at = 0; at < VICTIMS;) {
        if (!left) {
            from = atomic_fetch_add(&hand.at, AT_ONCE);
            left = AT_ONCE;
        }
        unsigned long frame = from++ % FRAMES;
        left--;
        if ((frame + at) % 3 == 0) {
            found[id].found += frames[frame].uses + frame;
            at++;
        }
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
    printf("%lu\n", found[0].found);
    return 0;
}
