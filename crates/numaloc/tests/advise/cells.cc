// Molecular dynamics with cell lists: forces between the molecules of neighbouring cells, which the constructor of a
// vector fills; AFTER: each thread fills the cells whose forces it computes.
#include <cstdio>
#include <memory>
#include <vector>

constexpr int SIDE = 14, EACH = 4, CELLS = SIDE * SIDE * SIDE, STEPS = 2;
struct Cell {
    double x[EACH], y[EACH], z[EACH], fx[EACH], fy[EACH], fz[EACH];
};

static void fill(Cell &cell, int number)
{
    for (int at = 0; at < EACH; at++) {
        cell.x[at] = number % SIDE + 0.25 * at;
        cell.y[at] = number / SIDE % SIDE + 0.2 * at;
        cell.z[at] = number / (SIDE * SIDE) + 0.15 * at;
        cell.fx[at] = cell.fy[at] = cell.fz[at] = 0;
    }
}

int main()
{
    std::unique_ptr<Cell[]> cells(new Cell[CELLS]);
#ifdef AFTER
#pragma omp parallel for schedule(static)
#endif
    for (int number = 0; number < CELLS; number++)
        fill(cells[number], number);
    for (int step = 0; step < STEPS; step++) {
#pragma omp parallel for schedule(static)
        for (int number = 0; number < CELLS; number++) {
            int cx = number % SIDE, cy = number / SIDE % SIDE, cz = number / (SIDE * SIDE);
            Cell &own = cells[number];
            for (int dz = -1; dz <= 1; dz++)
                for (int dy = -1; dy <= 1; dy++) {
                    int ox = (cx + 1) % SIDE, oy = (cy + dy + SIDE) % SIDE, oz = (cz + dz + SIDE) % SIDE;
                    const Cell &other = cells[(oz * SIDE + oy) * SIDE + ox];
                    for (int i = 0; i < EACH; i++)
                        for (int j = 0; j < EACH; j++) {
                            double x = own.x[i] - other.x[j], y = own.y[i] - other.y[j], z = own.z[i] - other.z[j];
                            double inverse = 1 / (x * x + y * y + z * z + 0.1);
                            own.fx[i] += x * inverse, own.fy[i] += y * inverse, own.fz[i] += z * inverse;
                        }
                }
        }
#pragma omp parallel for schedule(static)
        for (int number = 0; number < CELLS; number++)
            for (int at = 0; at < EACH; at++) {
                cells[number].x[at] += 1e-5 * cells[number].fx[at];
                cells[number].y[at] += 1e-5 * cells[number].fy[at];
                cells[number].z[at] += 1e-5 * cells[number].fz[at];
            }
    }
    std::printf("%g\n", cells[5].x[1]);
}
