// Nested functions, for which compilers put code on the stack: of threads, on signal stacks, deep down, and two that
// take turns at the same place.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>

__attribute__((noinline)) static long apply(long (*f)(long), long n) {
    long sum = 0;
    for (long at = 0; at < n; ++at)
        sum += f(at);
    return sum;
}

__attribute__((noinline)) static long scaled(long by) {
    long calls = 0;
    long times(long x) { ++calls; return x * by; }
    return apply(times, 20) + calls;
}

__attribute__((noinline)) static long shifted(long by) {
    long plus(long x) { return x + by; }
    return apply(plus, 20);
}

__attribute__((noinline)) static long deep(int depth, long (*f)(long)) {
    char room[3000];
    memset(room, depth, sizeof room);
    long own(long x) { return f(x) + room[x % sizeof room]; }
    if (depth)
        return deep(depth - 1, own) % 1000003;
    return apply(own, 10);
}

static long identity(long x) { return x; }

static long work(long from) {
    long sum = 0;
    for (long n = 0; n < 3000; ++n)
        sum += n % 2 ? scaled(n + from) : shifted(n + from);
    return sum;
}

static void *thread(void *from) {
    return (void *)(work((long)from) + deep(30, identity));
}

static void *stack(size_t size) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    return mmap(NULL, size, PROT_READ | PROT_WRITE | PROT_EXEC, flags, -1, 0);
}

static long handled;
static void handler(int number) { handled += scaled(number); }

static ucontext_t here, there;
static void elsewhere(void) { handled += work(5) + deep(10, identity); }

int main(void) {
    printf("%ld\n", work(0));
    // Deeper than the stack's pages that are there at the beginning.
    for (int n = 0; n < 3; ++n)
        printf("%ld\n", deep(1500, identity));
    pthread_t threads[4];
    for (long n = 0; n < 4; ++n)
        pthread_create(threads + n, NULL, thread, (void *)n);
    for (int n = 0; n < 4; ++n) {
        void *result;
        pthread_join(threads[n], &result);
        printf("%ld\n", (long)result);
    }
    stack_t other = {.ss_sp = stack(1 << 16), .ss_size = 1 << 16};
    sigaltstack(&other, NULL);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, NULL);
    long captured = 3;
    long raising(long x) { raise(SIGUSR1); return x * captured; }
    printf("%ld\n", apply(raising, 30));
    getcontext(&there);
    there.uc_stack.ss_sp = stack(1 << 20);
    there.uc_stack.ss_size = 1 << 20;
    there.uc_link = &here;
    makecontext(&there, elsewhere, 0);
    swapcontext(&here, &there);
    printf("%ld\n", handled);
    // A write to the stack takes no time, with code there: these calls take milliseconds.
    printf("in time %d\n", clock() < 5 * CLOCKS_PER_SEC);
}
