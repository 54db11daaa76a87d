/* Sets its own affinity to PU 0, as OMP_PROC_BIND or taskset inside a script would. */
#define _GNU_SOURCE
#include <sched.h>

int main(void)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    return sched_setaffinity(0, sizeof one, &one) ? 1 : 0;
}
