// Counts the iterations of loops of all kinds: each must be executed exactly once. Prints the names of those that are not.
#define _GNU_SOURCE
#include <limits.h>
#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 5000 };

static int failed;

static void check(const char *name, const int *count, int length, int times)
{
    for (int at = 0; at < length; at++)
        if (__atomic_load_n(&count[at], __ATOMIC_RELAXED) != times) {
            fprintf(stderr, "%s: iteration %d of %d was executed %d times instead of %d\n", name, at, length, count[at], times);
            __atomic_add_fetch(&failed, 1, __ATOMIC_RELAXED);
            return;
        }
}

#define HIT(at) __atomic_add_fetch(&count[at], 1, __ATOMIC_RELAXED)
#define CLEAR int count[MOST] = {0}

static void plain(int n)
{
    CLEAR;
#pragma omp parallel for schedule(dynamic)
    for (int i = 0; i < n; i++)
        HIT(i);
    check("dynamic", count, n, 1);
    memset(count, 0, sizeof count);
#pragma omp parallel for schedule(dynamic, 7)
    for (long i = 0; i < n; i++)
        HIT(i);
    check("dynamic, 7", count, n, 1);
    memset(count, 0, sizeof count);
#pragma omp parallel for schedule(guided, 3)
    for (unsigned i = 0; i < (unsigned)n; i++)
        HIT(i);
    check("guided, 3", count, n, 1);
    memset(count, 0, sizeof count);
    int last = -1;
#pragma omp parallel for schedule(dynamic, 2) lastprivate(last)
    for (int i = n - 1; i >= 0; i -= 3) {
        HIT(i);
        last = i;
    }
    for (int i = n - 1; i >= 0; i -= 3) {
        if (count[i] != 1)
            failed++;
        count[i] = 1;
        if (i < 3 && last != i) {
            fprintf(stderr, "lastprivate: %d instead of %d\n", last, i);
            failed++;
        }
    }
}

static void runtime_loops(int n)
{
    CLEAR;
#pragma omp parallel
    {
#pragma omp for schedule(runtime) nowait
        for (int i = 0; i < n; i++)
            HIT(i);
#pragma omp for schedule(runtime)
        for (unsigned long long i = 0; i < (unsigned long long)n; i++)
            HIT(i);
#pragma omp for schedule(nonmonotonic : runtime)
        for (long i = 0; i < n; i++)
            HIT(i);
    }
    check("runtime", count, n, 3);
}

static void wide(void)
{
    CLEAR;
    // Close to the end of the type: a chunk more would wrap.
#pragma omp parallel for schedule(dynamic, 1000)
    for (unsigned long long i = ULLONG_MAX - 107; i < ULLONG_MAX - 7; i += 7)
        HIT((i - (ULLONG_MAX - 107)) / 7);
    check("up to the end of unsigned long long", count, 15, 1);
    memset(count, 0, sizeof count);
#pragma omp parallel for schedule(guided)
    for (unsigned long long i = 108; i > 9; i -= 9)
        HIT((108 - i) / 9);
    check("down to the end of unsigned long long", count, 11, 1);
    memset(count, 0, sizeof count);
#pragma omp parallel for schedule(dynamic, 5)
    for (unsigned long long i = 5; i <= ULLONG_MAX / 2; i += ULLONG_MAX / 32)
        HIT(i / (ULLONG_MAX / 32));
    check("wide steps", count, 16, 1);
    memset(count, 0, sizeof count);
#pragma omp parallel for schedule(dynamic)
    for (long i = LONG_MIN / 2; i < LONG_MAX / 2; i += 1L << 58)
        HIT((i >> 58) + 16);
    check("half of long", count, 32, 1);
    memset(count, 0, sizeof count);
    // More iterations than a part can be numbered for: only some are executed.
#pragma omp parallel for schedule(dynamic, 1 << 30)
    for (long i = 0; i < 20L << 32; i += 1L << 30)
        HIT(i >> 30);
    check("beyond 2^32", count, 80, 1);
    memset(count, 0, sizeof count);
#pragma omp parallel for schedule(dynamic)
    for (int i = INT_MAX - 10; i < INT_MAX; i++)
        HIT(i - (INT_MAX - 10));
    check("up to the end of int", count, 10, 1);
    memset(count, 0, sizeof count);
#pragma omp parallel for schedule(guided, 2)
    for (int i = INT_MIN + 10; i > INT_MIN; i -= 2)
        HIT((INT_MIN + 10 - i) / 2);
    check("down to the end of int", count, 5, 1);
}

static void nested(int n)
{
    static int count[64][64];
    memset(count, 0, sizeof count);
    omp_set_max_active_levels(3);
#pragma omp parallel for schedule(dynamic) num_threads(3)
    for (int i = 0; i < n; i++) {
#pragma omp parallel for schedule(dynamic, 2) num_threads(2)
        for (int j = 0; j < n; j++) {
#pragma omp parallel for schedule(guided) if (j % 2)
            for (int k = 0; k < 2; k++)
                __atomic_add_fetch(&count[i][j], 1, __ATOMIC_RELAXED);
        }
    }
    for (int i = 0; i < n; i++)
        check("nested", count[i], n, 2);
    omp_set_max_active_levels(1);
    memset(count, 0, sizeof count);
#pragma omp parallel for schedule(dynamic)
    for (int i = 0; i < n; i++) {
#pragma omp parallel for schedule(dynamic)
        for (int j = 0; j < n; j++)
            __atomic_add_fetch(&count[i][j], 1, __ATOMIC_RELAXED);
    }
    for (int i = 0; i < n; i++)
        check("nested in one thread", count[i], n, 1);
}

// Regions in regions in regions: each thread is in many loops.
static void deeper(int depth, int *count)
{
    if (depth == 0) {
        HIT(0);
        return;
    }
#pragma omp parallel for schedule(dynamic)
    for (int i = 0; i < 2; i++)
        deeper(depth - 1, count);
}

static void without_waiting(int n)
{
    CLEAR;
#pragma omp parallel
    for (int round = 0; round < 40; round++) {
#pragma omp for schedule(dynamic, 3) nowait
        for (int i = 0; i < n; i++)
            HIT(i);
#pragma omp for schedule(guided) nowait
        for (long i = 0; i < n; i++)
            HIT(i);
    }
    check("nowait", count, n, 80);
}

static void cancelled(int n)
{
    for (int round = 0; round < 50; round++) {
        CLEAR;
#pragma omp parallel
        {
#pragma omp for schedule(dynamic)
            for (int i = 0; i < n; i++) {
                HIT(i);
                if (i % 5 == 4) {
#pragma omp cancel for
                }
#pragma omp cancellation point for
            }
#pragma omp for schedule(dynamic) nowait
            for (int i = 0; i < n; i++)
                HIT(i);
        }
        for (int i = 0; i < n; i++)
            if (count[i] < 1 || count[i] > 2) {
                fprintf(stderr, "cancel: iteration %d was executed %d times\n", i, count[i]);
                failed++;
                return;
            }
        memset(count, 0, sizeof count);
#pragma omp parallel
        {
#pragma omp for schedule(dynamic, 2)
            for (int i = 0; i < n; i++)
                HIT(i);
#pragma omp cancel parallel
#pragma omp for schedule(dynamic, 2)
            for (int i = 0; i < n; i++)
                HIT(i);
        }
        for (int i = 0; i < n; i++)
            if (count[i] < 1 || count[i] > 2) {
                fprintf(stderr, "cancel parallel: iteration %d was executed %d times\n", i, count[i]);
                failed++;
                return;
            }
    }
}

static void in_order(int n)
{
    CLEAR;
    int next = 0;
#pragma omp parallel for ordered schedule(dynamic)
    for (int i = 0; i < n; i++) {
        HIT(i);
#pragma omp ordered
        {
            if (next != i)
                failed++;
            next++;
        }
    }
    check("ordered", count, n, 1);
    memset(count, 0, sizeof count);
    long seen = -1;
#pragma omp parallel firstprivate(seen)
#pragma omp for schedule(monotonic : dynamic, 2)
    for (int i = 0; i < n; i++) {
        if (i <= seen) {
            fprintf(stderr, "monotonic: %d after %ld\n", i, seen);
            __atomic_add_fetch(&failed, 1, __ATOMIC_RELAXED);
        }
        seen = i;
        HIT(i);
    }
    check("monotonic", count, n, 1);
    memset(count, 0, sizeof count);
#pragma omp parallel for ordered(1) schedule(dynamic)
    for (int i = 0; i < n; i++) {
#pragma omp ordered depend(sink : i - 1)
        HIT(i);
#pragma omp ordered depend(source)
    }
    check("doacross", count, n, 1);
    memset(count, 0, sizeof count);
    int sum = 0;
#pragma omp parallel
#pragma omp for schedule(dynamic) reduction(task, + : sum)
    for (int i = 0; i < n; i++) {
        HIT(i);
#pragma omp task in_reduction(+ : sum)
        sum += 1;
    }
    if (sum != n)
        failed++;
    check("reduction of tasks", count, n, 1);
    memset(count, 0, sizeof count);
#pragma omp parallel for collapse(2) schedule(dynamic, 3)
    for (int i = 0; i < 10; i++)
        for (int j = 0; j < 10; j++)
            HIT(i * 10 + j);
    check("collapse", count, 100, 1);
#if defined __clang__
    memset(count, 0, sizeof count);
#pragma omp teams num_teams(2)
#pragma omp distribute parallel for schedule(dynamic, 3)
    for (int i = 0; i < n; i++)
        HIT(i);
    check("distribute", count, n, 1);
#endif
}

static void alone(int n)
{
    CLEAR;
#pragma omp for schedule(dynamic, 3)
    for (int i = 0; i < n; i++)
        HIT(i);
    check("outside of a region", count, n, 1);
    memset(count, 0, sizeof count);
#pragma omp parallel for schedule(dynamic, 3) num_threads(1)
    for (int i = 0; i < n; i++)
        HIT(i);
    check("one thread", count, n, 1);
}

static void growing(int n)
{
    for (int threads = 1; threads < 7; threads++) {
        omp_set_num_threads(threads);
        plain(n);
        without_waiting(n);
    }
    omp_set_num_threads(4);
}

static void *at_once(void *argument)
{
    (void)argument;
    for (int round = 0; round < 30; round++) {
        plain(97);
        without_waiting(31);
    }
    return NULL;
}

static void in_tasks(int n)
{
    CLEAR;
#pragma omp parallel num_threads(2)
#pragma omp for schedule(dynamic)
    for (int i = 0; i < n; i++) {
#pragma omp task
        {
#pragma omp parallel for schedule(dynamic) num_threads(2)
            for (int j = 0; j < 3; j++)
                HIT(i);
        }
    }
    check("regions in tasks", count, n, 3);
}

// What each thread gets of the loop with 12 iterations and a team of 4, for the test that iterations are dealt.
static void who(void)
{
    int by[12];
#pragma omp parallel num_threads(4)
    {
#pragma omp for schedule(dynamic)
        for (int i = 0; i < 12; i++)
            by[i] = omp_get_thread_num();
    }
    for (int i = 0; i < 12; i++)
        printf("%d", by[i]);
#pragma omp parallel for schedule(runtime) num_threads(4)
    for (int i = 0; i < 12; i++)
        by[i] = omp_get_thread_num();
    printf(" ");
    for (int i = 0; i < 12; i++)
        printf("%d", by[i]);
    printf("\n");
}

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1) {
        who();
        return 0;
    }
    int sizes[] = {0, 1, 2, 3, 5, 64, 1000};
    omp_set_num_threads(4);
    for (int at = 0; at < 7; at++) {
        int n = sizes[at];
        plain(n);
        runtime_loops(n);
        omp_set_schedule(omp_sched_dynamic, 3);
        runtime_loops(n);
        omp_set_schedule(omp_sched_guided, 2);
        runtime_loops(n);
        omp_set_schedule(omp_sched_static, 0);
        runtime_loops(n);
        omp_set_schedule(omp_sched_auto, 0);
        runtime_loops(n);
        without_waiting(n);
        in_order(n);
        alone(n);
        if (n < 64)
            nested(n);
        in_tasks(n);
        cancelled(n);
    }
    wide();
    growing(50);
    omp_set_max_active_levels(1);
    int count[MOST] = {0};
    deeper(9, count);
    check("deep", count, 1, 1 << 9);
    omp_set_max_active_levels(12);
    omp_set_num_threads(2);
    memset(count, 0, sizeof count);
    deeper(4, count);
    check("deep with teams", count, 1, 1 << 4);
    omp_set_max_active_levels(1);
    pthread_t threads[3];
    for (int at = 0; at < 3; at++)
        pthread_create(&threads[at], NULL, at_once, NULL);
    at_once(NULL);
    for (int at = 0; at < 3; at++)
        pthread_join(threads[at], NULL);
    if (failed) {
        fprintf(stderr, "%d failures\n", failed);
        return 1;
    }
    puts("each once");
    return 0;
}
