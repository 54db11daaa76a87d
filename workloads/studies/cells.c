/* Particles in cells along a line: each thread owns a block of cells with their particles, computes forces from the
 * particles of the cell and its two neighbours, and moves particles that cross a border into the next cell.
 *
 * Communication: neighbours, with an amount that follows the particles at the borders.
 * Pages: the main thread makes all particles; each page is later used by one thread, at borders by two.
 * Usage: cells [CELLS=2000] [PARTICLES=24] [STEPS=3]: particles in each cell at the start */
#include "../workload.h"

enum { ROOM = 64 };

struct particle {
    double at, speed, force, mass;
};

struct cell {
    long count;
    double border[7];
    struct particle particle[ROOM];
};

int main(int argc, char **argv)
{
    long cells = argument(argc, argv, 1, 2000), start = argument(argc, argv, 2, 24), steps = argument(argc, argv, 3, 3);
    if (start > ROOM / 2)
        start = ROOM / 2;
    struct cell *cell[2] = {pages((size_t)cells * sizeof(struct cell)), pages((size_t)cells * sizeof(struct cell))};
    for (long c = 0; c < cells; c++) {
        cell[0][c].count = start, cell[1][c].count = 0;
        for (long i = 0; i < ROOM; i++) {
            cell[1][c].particle[i] = (struct particle){0};
            double speed = 0.002 * (double)((c * 7 + i * 13) % 11 - 5);
            cell[0][c].particle[i] = (struct particle){(double)i / (double)start, speed, 0.0, 1.0};
        }
    }
#pragma omp parallel
    for (long step = 0; step < steps; step++) {
        struct cell *now = cell[step % 2], *next = cell[1 - step % 2];
#pragma omp for schedule(static)
        for (long c = 0; c < cells; c++)
            for (long i = 0; i < now[c].count; i++) {
                struct particle *mine = &now[c].particle[i];
                double force = 0;
                for (long d = -1; d <= 1; d++) {
                    const struct cell *other = &now[(c + d + cells) % cells];
                    for (long j = 0; j < other->count; j += 4) {
                        double apart = other->particle[j].at + (double)d - mine->at;
                        force += apart * other->particle[j].mass;
                    }
                }
                mine->force = force;
            }
        /* Each cell collects what its neighbours and itself send it, so no two threads write one cell. */
#pragma omp for schedule(static)
        for (long c = 0; c < cells; c++) {
            long count = 0;
            for (long d = -1; d <= 1; d++) {
                const struct cell *from = &now[(c + d + cells) % cells];
                for (long i = 0; i < from->count && count < ROOM; i++) {
                    struct particle moved = from->particle[i];
                    moved.speed += 1e-9 * moved.force;
                    moved.at += moved.speed + (double)d;
                    if (moved.at >= 0.0 && moved.at < 1.0)
                        next[c].particle[count++] = moved;
                }
            }
            next[c].count = count;
        }
    }
    long count = 0;
    for (long c = 0; c < cells; c++)
        count += cell[steps % 2][c].count;
    int wrong = count != cells * start;
    printf("cells: %d threads, %ld particles, %s\n", omp_get_max_threads(), count, wrong ? "wrong" : "ok");
    return wrong;
}
