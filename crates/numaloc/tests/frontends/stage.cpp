// Stages that hand vectors on: assignment, std::copy and std::fill.
#include <algorithm>
#include <cstdio>
#include <thread>
#include <vector>
int main()
{
    const int T = 4, N = 50000;
    std::vector<std::vector<double>> in(T, std::vector<double>(N, 1.0)), out(T, std::vector<double>(N, 2.0));
    for (int round = 0; round < 3; round++) {
        std::vector<std::thread> threads;
        for (int t = 0; t < T; t++)
            threads.emplace_back([&, t] {
                out[t] = in[(t + 1) % T];
                for (double &value : out[t]) value = value * 0.5 + t;
                std::copy(out[t].begin(), out[t].begin() + N / 2, out[t].begin() + N / 2);
                std::fill(out[t].begin(), out[t].begin() + N / 4, 0.0);
            });
        for (std::thread &thread : threads) thread.join();
        in.swap(out);
    }
    std::printf("%g\n", in[1][7]);
}
