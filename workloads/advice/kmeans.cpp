// Clusters of points: each thread assigns its points to the nearest of shared centres and sums them; main computes
// new centres. Points are written by the threads that use them. Arguments: THREADS [POINTS].
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>
constexpr int CENTRES = 8, AXES = 4;
struct Sums { double at[CENTRES][AXES]; long count[CENTRES]; };
int main(int argc, char **argv) {
    int threads = std::atoi(argv[1]);
    long n = argc > 2 ? std::atol(argv[2]) : 10000;
    double *points = static_cast<double *>(std::malloc(n * AXES * sizeof(double)));
    double centres[CENTRES][AXES];
    for (int c = 0; c < CENTRES; c++)
        for (int x = 0; x < AXES; x++) centres[c][x] = c * 10 + x;
    std::vector<Sums> sums(threads);
    for (int turn = 0; turn < 2; turn++) {
        std::vector<std::thread> workers;
        for (int me = 0; me < threads; me++)
            workers.emplace_back([&, me] {
                Sums &own = sums[me] = Sums{};
                for (long i = n * me / threads; i < n * (me + 1) / threads; i++) {
                    double *point = points + i * AXES;
                    if (turn == 0)
                        for (int x = 0; x < AXES; x++) point[x] = (i * 37 + x * 11) % 80;
                    int nearest = 0;
                    double least = 1e300;
                    for (int c = 0; c < CENTRES; c++) {
                        double sum = 0;
                        for (int x = 0; x < AXES; x++) sum += (point[x] - centres[c][x]) * (point[x] - centres[c][x]);
                        if (sum < least) least = sum, nearest = c;
                    }
                    for (int x = 0; x < AXES; x++) own.at[nearest][x] += point[x];
                    own.count[nearest]++;
                }
            });
        for (auto &worker : workers) worker.join();
        for (int c = 0; c < CENTRES; c++)
            for (int x = 0; x < AXES; x++) {
                double sum = 0, count = 0;
                for (auto &part : sums) sum += part.at[c][x], count += part.count[c];
                if (count > 0) centres[c][x] = sum / count;
            }
    }
    std::printf("%g\n", centres[0][0]);
}
