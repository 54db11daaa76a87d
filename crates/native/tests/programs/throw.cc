// Exceptions through many frames, in many threads, with destructors on the way.
#include <cstdio>
#include <stdexcept>
#include <thread>
#include <vector>

static thread_local int undone;
struct Guard {
    ~Guard() { ++undone; }
};

__attribute__((noinline)) static int deep(int n) {
    Guard guard;
    if (n == 0)
        throw std::runtime_error("bottom");
    return deep(n - 1) + 1;
}

int main() {
    std::vector<std::thread> threads;
    std::vector<int> sums(8);
    for (int t = 0; t < 8; ++t)
        threads.emplace_back([t, &sums] {
            for (int n = 1; n <= 200; ++n) {
                try {
                    deep(n);
                } catch (const std::exception &error) {
                    sums[t] += undone + error.what()[0];
                }
                undone = 0;
            }
        });
    for (auto &thread : threads)
        thread.join();
    for (int sum : sums)
        std::printf("%d\n", sum);
}
