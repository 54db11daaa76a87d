/* Prints "thread PU" for each OpenMP thread that may run on one PU only, or with the argument "set" the
 * PUs the process may run on. */
#define _GNU_SOURCE
#include <omp.h>
#include <sched.h>
#include <stdio.h>

static int pus_of_thread[1024];

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1) {
        cpu_set_t set;
        const char *comma = "";
        sched_getaffinity(0, sizeof set, &set);
        for (int pu = 0; pu < CPU_SETSIZE; pu++)
            if (CPU_ISSET(pu, &set)) {
                printf("%s%d", comma, pu);
                comma = ",";
            }
        printf("\n");
        return 0;
    }
    int threads = 0;
#pragma omp parallel
    {
        cpu_set_t set;
        int me = omp_get_thread_num(), only = -1;
        sched_getaffinity(0, sizeof set, &set);
        for (int pu = 0; pu < CPU_SETSIZE; pu++)
            if (CPU_ISSET(pu, &set))
                only = CPU_COUNT(&set) == 1 ? pu : -1;
        pus_of_thread[me] = only;
#pragma omp single
        threads = omp_get_num_threads();
    }
    for (int t = 0; t < threads; t++)
        printf("%d %d\n", t, pus_of_thread[t]);
    return 0;
}
