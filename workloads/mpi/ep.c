/* Embarrassingly parallel: ranks count pseudo-random points in a circle by themselves and add up at the
 * very end (NPB EP's pattern: communication only in the last slice).
 *
 * No point-to-point message at all; one MPI_Allreduce of 8 bytes. On 2^k ranks Open MPI 4.1 runs it by
 * recursive doubling: rank r exchanges one message of 8 bytes with each r ^ 2^i.
 * Usage: ep [POINTS=1000000]
 */
#include <stdint.h>
#include "workload.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    long points = argument(argc, argv, 1, 1000000), inside = 0, all = 0;
    uint64_t state = 88172645463325252u + (uint64_t)rank * 7919u;
    for (long i = 0; i < points; i++) {
        double at[2];
        for (int axis = 0; axis < 2; axis++) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            at[axis] = (double)(state >> 11) / 9007199254740992.0;
        }
        inside += at[0] * at[0] + at[1] * at[1] < 1.0;
    }
    MPI_Allreduce(&inside, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    double pi = 4.0 * (double)all / (double)points / ranks;
    return finish("ep", points >= 100000 && !(pi > 3.1 && pi < 3.2));
}
