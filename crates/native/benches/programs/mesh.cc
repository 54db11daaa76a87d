// Forces on an unstructured mesh of hexahedra: elements gather from their corners, nodes add up what the elements around
// them have left, as in explicit hydrodynamics. Threads share the lines of nodes at the borders of their parts.
#include <cmath>
#include <cstdio>
#include <vector>

namespace {

constexpr int SIDE = 40, POINTS = SIDE + 1, ELEMENTS = SIDE * SIDE * SIDE, NODES = POINTS * POINTS * POINTS;
constexpr int STEPS = 120, CORNERS = 8;

struct Mesh {
    std::vector<int> corner;
    /// Places of each node in the list of corners, from `first` on.
    std::vector<int> first, used;
    std::vector<double> x, y, z, speed, force, volume, pressure;
};

Mesh made()
{
    Mesh mesh;
    mesh.corner.resize(CORNERS * ELEMENTS);
    for (int e = 0; e < ELEMENTS; e++) {
        const int i = e % SIDE, j = e / SIDE % SIDE, k = e / SIDE / SIDE;
        for (int c = 0; c < CORNERS; c++)
            mesh.corner[CORNERS * e + c] = (i + (c & 1)) + POINTS * ((j + (c >> 1 & 1)) + POINTS * (k + (c >> 2)));
    }
    std::vector<std::vector<int>> around(NODES);
    for (int at = 0; at < CORNERS * ELEMENTS; at++)
        around[mesh.corner[at]].push_back(at);
    mesh.first.push_back(0);
    for (const auto &places : around) {
        mesh.used.insert(mesh.used.end(), places.begin(), places.end());
        mesh.first.push_back(int(mesh.used.size()));
    }
    mesh.x.resize(NODES);
    mesh.y.resize(NODES);
    mesh.z.resize(NODES);
    mesh.speed.resize(NODES);
    for (int n = 0; n < NODES; n++) {
        mesh.x[n] = n % POINTS;
        mesh.y[n] = n / POINTS % POINTS;
        mesh.z[n] = n / POINTS / POINTS;
    }
    mesh.force.resize(CORNERS * ELEMENTS);
    mesh.volume.resize(ELEMENTS);
    mesh.pressure.assign(ELEMENTS, 1);
    mesh.pressure[0] = 9;
    return mesh;
}

void step(Mesh &mesh)
{
#pragma omp parallel
    {
#pragma omp for
        for (int e = 0; e < ELEMENTS; e++) {
            const int *corner = &mesh.corner[CORNERS * e];
            double low = 1e9, high = -1e9, middle = 0;
            for (int c = 0; c < CORNERS; c++) {
                const double place = mesh.x[corner[c]] + 0.5 * mesh.y[corner[c]] + 0.25 * mesh.z[corner[c]];
                low = std::fmin(low, place);
                high = std::fmax(high, place);
                middle += place / CORNERS;
            }
            mesh.volume[e] = high - low;
            for (int c = 0; c < CORNERS; c++)
                mesh.force[CORNERS * e + c] = mesh.pressure[e] * (mesh.x[corner[c]] - middle + 1) / mesh.volume[e];
        }
#pragma omp for
        for (int n = 0; n < NODES; n++) {
            double sum = 0;
            for (int at = mesh.first[n]; at < mesh.first[n + 1]; at++)
                sum += mesh.force[mesh.used[at]];
            mesh.speed[n] += 1e-4 * sum;
            mesh.x[n] += 1e-3 * mesh.speed[n];
        }
#pragma omp for
        for (int e = 0; e < ELEMENTS; e++)
            mesh.pressure[e] = 0.9 * mesh.pressure[e] + 0.1 / mesh.volume[e];
    }
}

} // namespace

int main()
{
    Mesh mesh = made();
    for (int n = 0; n < STEPS; n++)
        step(mesh);
    double sum = 0;
    for (const double place : mesh.x)
        sum += place;
    std::printf("%.6f\n", sum);
}
