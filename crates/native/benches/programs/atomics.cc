// Particles whose forces are added by atomic instructions: threads update the same lines all the time, as in molecular
// dynamics without lists of owners.
#include <cstdio>
#include <vector>

namespace {

constexpr int PARTICLES = 4000, NEIGHBOURS = 64, STEPS = 80, DIMENSIONS = 3;

struct Vector {
    double at[DIMENSIONS];
};

void add_forces(const std::vector<Vector> &place, std::vector<Vector> &force)
{
#pragma omp parallel for schedule(static)
    for (int i = 0; i < PARTICLES; i++) {
        for (int n = 1; n <= NEIGHBOURS; n++) {
            const int j = (i + n * 37) % PARTICLES;
            double distance[DIMENSIONS], square = 0.01;
            for (int k = 0; k < DIMENSIONS; k++) {
                distance[k] = place[i].at[k] - place[j].at[k];
                square += distance[k] * distance[k];
            }
            for (int k = 0; k < DIMENSIONS; k++) {
                const double pull = distance[k] / (square * square);
#pragma omp atomic
                force[i].at[k] += pull;
#pragma omp atomic
                force[j].at[k] -= pull;
            }
        }
    }
}

} // namespace

int main()
{
    std::vector<Vector> place(PARTICLES), force(PARTICLES);
    unsigned state = 1;
    for (Vector &one : place)
        for (double &part : one.at) {
            state = state * 1103515245 + 12345;
            part = (state >> 8 & 0xffff) / 6553.6;
        }
    for (int step = 0; step < STEPS; step++) {
        add_forces(place, force);
#pragma omp parallel for
        for (int i = 0; i < PARTICLES; i++)
            for (int k = 0; k < DIMENSIONS; k++) {
                place[i].at[k] += 1e-6 * force[i].at[k];
                force[i].at[k] = 0;
            }
    }
    double sum = 0;
    for (const Vector &one : place)
        sum += one.at[0];
    // The order of additions differs from run to run.
    std::printf("%.4f\n", sum);
}
