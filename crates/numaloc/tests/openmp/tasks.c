/* When tasks run: stretches of 64 pages that are written once, in an order that the program lays down. The profile tells when
 * each page was touched first.
 *
 * Two threads. Each task of the first part is made by thread 0, which waits until the other has begun it, so that
 * the other, which has nothing else to do, runs it. Prints who did. */
#include <omp.h>
#include <stdio.h>
#include <unistd.h>

enum { CELLS = 64 * 512, CHAINS = 12 };
long stretch[10 + 2 * CHAINS][CELLS] __attribute__((aligned(4096)));
static volatile int runner[10];
static long chain[CHAINS];

static __attribute__((noinline)) void work(int number)
{
    for (long i = 0; i < CELLS; i++)
        stretch[number][i] = i;
}

static void task(int number)
{
    runner[number] = omp_get_thread_num() + 1;
    work(number);
}

/* Until task `number` has begun, ten seconds at most. */
static void until(int number)
{
    for (int i = 0; i < 10000 && !runner[number]; i++)
        usleep(1000);
}

static void sequence(void)
{
    work(0);
#pragma omp task
    task(1);
    until(1);
#pragma omp taskwait
    work(2);
#pragma omp taskgroup
    {
#pragma omp task
        {
#pragma omp task
            task(3);
            runner[4] = 1;
        }
        until(4);
    }
    work(4);
#pragma omp task
    task(5);
    until(5);
}

static void chains(void)
{
#pragma omp taskgroup
    for (int i = 0; i < CHAINS; i++) {
#pragma omp task depend(out : chain[i])
        work(10 + 2 * i);
#pragma omp task depend(in : chain[i])
        work(11 + 2 * i);
    }
}

int main(void)
{
#pragma omp parallel num_threads(2)
    {
        int thread = omp_get_thread_num();
        if (thread == 0)
            sequence();
#pragma omp barrier
        work(6 + thread);
#pragma omp barrier
        if (thread == 0) {
#pragma omp task
            task(8);
            until(8);
        }
    }
    work(9);
#pragma omp parallel num_threads(4)
#pragma omp master
    chains();
    printf("%d %d %d\n", runner[1] - 1, runner[5] - 1, runner[8] - 1);
    return 0;
}
