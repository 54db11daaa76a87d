/* All pairs of bodies: everybody reads all positions, each thread moves its own bodies, which it made itself.
 *
 * Usage: bodies [COUNT=60000] [PARTNERS=40] [STEPS=3]: each body feels PARTNERS others, spread over all. */
#include "../../workload.h"

struct body {
    double x, y, z, mass;
};

int main(int argc, char **argv)
{
    long count = argument(argc, argv, 1, 60000), partners = argument(argc, argv, 2, 40);
    long steps = argument(argc, argv, 3, 3);
    struct body *now = pages((size_t)count * sizeof *now), *next = pages((size_t)count * sizeof *next);
    long wrong = 0;
    double sum = 0;
#pragma omp parallel reduction(+ : wrong, sum)
    {
#pragma omp for schedule(static)
        for (long i = 0; i < count; i++)
            now[i] = next[i] = (struct body){(double)i, (double)(i % 7), (double)(i % 3), 1.0};
        for (long step = 0; step < steps; step++) {
#pragma omp for schedule(static)
            for (long i = 0; i < count; i++) {
                double x = 0, y = 0, z = 0;
                for (long p = 1; p <= partners; p++) {
                    const struct body *other = &now[(i + p * (count / partners) + p * p) % count];
                    x += other->mass * (other->x - now[i].x);
                    y += other->mass * (other->y - now[i].y);
                    z += other->mass * (other->z - now[i].z);
                }
                next[i] = (struct body){now[i].x + 1e-9 * x, now[i].y + 1e-9 * y, now[i].z + 1e-9 * z, 1.0};
            }
#pragma omp for schedule(static)
            for (long i = 0; i < count; i++)
                now[i] = next[i];
        }
#pragma omp for schedule(static)
        for (long i = 0; i < count; i++) {
            wrong += now[i].mass != 1.0;
            sum += now[i].x;
        }
    }
    return finish("bodies", wrong, (uint64_t)sum);
}
