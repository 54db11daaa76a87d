/* Finite differences of waves in a cube: 7-point stencil in space, two steps back in time, planes dealt to threads in
 * blocks. Three fields: pressure now and before, and the medium, which is only read.
 *
 * Communication: thread t exchanges its border planes with t-1 and t+1.
 * Pages: INIT 1: the main thread initialises all fields, so every page is on its node; INIT 2: each thread initialises
 * its own planes, so first touch is right as long as threads stay.
 * Usage: waves3d [SIDE=96] [STEPS=6] [INIT=1] */
#include "../workload.h"

int main(int argc, char **argv)
{
    long side = argument(argc, argv, 1, 96), steps = argument(argc, argv, 2, 6), init = argument(argc, argv, 3, 1);
    long plane = side * side, cells = plane * side;
    double *field[2] = {pages((size_t)cells * sizeof(double)), pages((size_t)cells * sizeof(double))};
    double *medium = pages((size_t)cells * sizeof(double));
    int threads = init == 1 ? 1 : omp_get_max_threads();
#pragma omp parallel for schedule(static) num_threads(threads)
    for (long z = 0; z < side; z++)
        for (long i = z * plane; i < (z + 1) * plane; i++) {
            field[0][i] = field[1][i] = 0.0;
            medium[i] = 0.1 + 0.01 * (double)(z % 5);
        }
    field[0][(side / 2) * (plane + side + 1)] = 1.0;
#pragma omp parallel
    for (long step = 0; step < steps; step++) {
        const double *now = field[step % 2];
        double *next = field[1 - step % 2];
#pragma omp for schedule(static)
        for (long z = 1; z < side - 1; z++)
            for (long y = 1; y < side - 1; y++)
                for (long x = 1; x < side - 1; x++) {
                    long at = z * plane + y * side + x;
                    double around = now[at - 1] + now[at + 1] + now[at - side] + now[at + side] + now[at - plane] +
                                    now[at + plane] - 6.0 * now[at];
                    next[at] = 2.0 * now[at] - next[at] + medium[at] * around;
                }
    }
    double energy = 0;
    const double *last = field[steps % 2];
    for (long y = 0; y < side; y++)
        energy += last[(side / 2) * plane + y * side + side / 2] * last[(side / 2) * plane + y * side + side / 2];
    int wrong = !(energy > 0.0 && energy < 1e6);
    printf("waves3d: %d threads, energy %.9f, %s\n", omp_get_max_threads(), energy, wrong ? "wrong" : "ok");
    return wrong;
}
