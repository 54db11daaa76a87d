// Heat on a plane in vectors that their constructor fills; AFTER: memory that each thread fills where it works.
#include <cstdio>
#include <memory>
#include <vector>

constexpr long N = 384, ROUNDS = 6;

int main()
{
#ifdef AFTER
    std::unique_ptr<double[]> old_room(new double[N * N]), new_room(new double[N * N]);
    double *now = old_room.get(), *next = new_room.get();
#pragma omp parallel for schedule(static)
    for (long row = 0; row < N; row++)
        for (long column = 0; column < N; column++)
            now[row * N + column] = next[row * N + column] = 1.5;
#else
    std::vector<double> old_room(N * N, 1.5), new_room(N * N, 1.5);
    double *now = old_room.data(), *next = new_room.data();
#endif
    for (int round = 0; round < ROUNDS; round++) {
#pragma omp parallel for schedule(static)
        for (long row = 1; row < N - 1; row++)
            for (long column = 1; column < N - 1; column++)
                next[row * N + column] = 0.25 * (now[(row - 1) * N + column] + now[(row + 1) * N + column] +
                                                 now[row * N + column - 1] + now[row * N + column + 1]);
        std::swap(now, next);
    }
    std::printf("%g\n", now[N * N / 2]);
}
