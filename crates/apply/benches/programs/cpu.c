/* CPU-bound: about two seconds of integer work on two threads, no system calls while it lasts. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

static void *work(void *arg)
{
    uint64_t x = (uintptr_t)arg;
    for (long i = 0; i < 500000000L; i++)
        x = x * 6364136223846793005u + 1442695040888963407u;
    return (void *)(uintptr_t)x;
}

int main(void)
{
    pthread_t thread;
    void *a, *b;
    pthread_create(&thread, NULL, work, (void *)1);
    a = work((void *)2);
    pthread_join(thread, &b);
    return (((uintptr_t)a ^ (uintptr_t)b) == 42);
}
