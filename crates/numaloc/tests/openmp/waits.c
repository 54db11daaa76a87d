/* When iterations wait for each other, and tasks for events: stretches of 64 pages that are written once, in an order that the program
 * lays down. The profile tells when each page was touched first.
 *
 * Two threads. Prints sums that are the same in any order. */
#include <omp.h>
#include <stdio.h>
#include <unistd.h>

enum { CELLS = 64 * 512, ROWS = 4, COLUMNS = 4, CHAIN = 6 };
enum { GRID = CHAIN, EVENTS = GRID + ROWS * COLUMNS, REDUCTION = EVENTS + 9, ALL = REDUCTION + 4 };
long stretch[ALL][CELLS] __attribute__((aligned(4096)));
static long sum, looped, many;

static __attribute__((noinline)) void work(int number)
{
    for (long i = 0; i < CELLS; i++)
        stretch[number][i] = i;
}

/* Stretch i after stretch i - 1. */
static void chain(void)
{
#pragma omp for ordered(1) schedule(static, 1) nowait
    for (int i = 0; i < CHAIN; i++) {
#pragma omp ordered depend(sink : i - 1)
        work(i);
#pragma omp ordered depend(source)
    }
}

/* Row by row; each after that above it. */
static void grid(void)
{
#pragma omp for ordered(2) schedule(static, 1)
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++) {
#pragma omp ordered depend(sink : i - 1, j) depend(sink : i, j - 1)
            work(GRID + i * COLUMNS + j);
#pragma omp ordered depend(source)
        }
}

/* Numbers in registers, on the stack, and of every type and schedule. */
static void deep(void)
{
    unsigned long long bound = 10;
#pragma omp for ordered(1) schedule(dynamic, 1)
    for (unsigned long long i = 4; i < bound; i++) {
#pragma omp ordered depend(sink : i - 1)
        many = many * 3 + (long)i;
#pragma omp ordered depend(source)
    }
#pragma omp for ordered(1) schedule(guided)
    for (int i = 0; i < 6; i++) {
#pragma omp ordered depend(sink : i - 2) depend(sink : i - 1)
        many = many * 3 % 1000003 + i;
#pragma omp ordered depend(source)
    }
#pragma omp for ordered(9) schedule(static, 1)
    for (int a = 0; a < 5; a++)
        for (int b = 0; b < 1; b++)
            for (int c = 0; c < 1; c++)
                for (int d = 0; d < 1; d++)
                    for (int e = 0; e < 1; e++)
                        for (int f = 0; f < 2; f++)
                            for (int g = 0; g < 1; g++)
                                for (int h = 0; h < 1; h++)
                                    for (int i = 0; i < 3; i++) {
#pragma omp ordered depend(sink : a - 1, b, c, d, e, f, g, h, i)
                                        if (f == 1 && i == 2)
                                            many = many * 5 % 1000003 + a;
#pragma omp ordered depend(source)
                                    }
}

static omp_event_handle_t event;
static volatile int ready;

/* A stretch by a task whose event the other thread fulfils after two stretches of its own; then one by who waits for that. */
static void detached(int thread, int first, int dependent)
{
    static int cell;
    if (thread == 0) {
        omp_event_handle_t mine;
        if (dependent) {
#pragma omp task detach(mine) depend(out : cell)
            work(first);
        } else {
#pragma omp task detach(mine)
            work(first);
        }
        event = mine;
        ready = 1;
        if (dependent) {
#pragma omp task depend(in : cell)
            work(first + 3);
        }
#pragma omp taskwait
        if (!dependent)
            work(first + 3);
        ready = 0;
    } else {
        while (!ready)
            usleep(1000);
        work(first + 1);
        work(first + 2);
        omp_fulfill_event(event);
    }
#pragma omp barrier
}

int main(void)
{
#pragma omp parallel num_threads(2)
    {
        int thread = omp_get_thread_num();
        chain();
#pragma omp barrier
        grid();
        deep();
        detached(thread, EVENTS, 0);
        detached(thread, EVENTS + 4, 1);
        if (thread == 0)
            work(EVENTS + 8);
#pragma omp barrier
    }
    work(REDUCTION);
#pragma omp parallel num_threads(2) reduction(task, + : sum)
    {
#pragma omp task in_reduction(+ : sum)
        sum += 5;
#pragma omp barrier
        if (omp_get_thread_num() == 1)
            work(REDUCTION + 1);
#pragma omp for reduction(task, + : looped)
        for (int i = 0; i < 2; i++) {
#pragma omp task in_reduction(+ : looped)
            looped += i + 1;
        }
        if (omp_get_thread_num() == 0)
            work(REDUCTION + 2);
    }
    work(REDUCTION + 3);
    printf("%ld %ld %ld\n", sum, looped, many);
    return 0;
}
