// Merge sort: blocks are sorted by a thread each, then pairs of blocks are merged by half of the threads, and so on.
// Main fills the array. Arguments: THREADS [KEYS].
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>
int main(int argc, char **argv) {
    int threads = std::atoi(argv[1]);
    long n = argc > 2 ? std::atol(argv[2]) : 20000;
    std::vector<unsigned> keys(n), other(n);
    unsigned seed = 3;
    for (auto &key : keys) key = seed = seed * 1664525u + 1013904223u;
    auto begin = [&](long block) { return n * std::min<long>(block, threads) / threads; };
    std::vector<std::thread> workers;
    for (int t = 0; t < threads; t++)
        workers.emplace_back([&, t] { std::sort(keys.begin() + begin(t), keys.begin() + begin(t + 1)); });
    for (auto &worker : workers) worker.join();
    for (long width = 1; width < threads; width *= 2) {
        workers.clear();
        for (long t = 0; t < threads; t += 2 * width)
            workers.emplace_back([&, t] {
                auto at = [&](long block) { return keys.begin() + begin(block); };
                std::merge(at(t), at(t + width), at(t + width), at(t + 2 * width), other.begin() + begin(t));
            });
        for (auto &worker : workers) worker.join();
        std::swap(keys, other);
    }
    std::puts(std::is_sorted(keys.begin(), keys.end()) ? "sorted" : "not sorted");
}
