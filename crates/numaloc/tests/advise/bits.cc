// Distinct keys are estimated by a bit-set (linear counting) in which all threads set bits atomically; AFTER: each thread
// has a set of its own, joined at the end.
#include <atomic>
#include <bit>
#include <cstdio>
#include <thread>
#include <vector>

constexpr int THREADS = 8, WORDS = 64;
constexpr long KEYS = 20000;
static std::atomic<unsigned long> bits[WORDS];

int main()
{
    std::vector<std::thread> threads;
    for (int id = 0; id < THREADS; id++)
        threads.emplace_back([id] {
#ifdef AFTER
            unsigned long own[WORDS] = {};
#endif
            for (long at = 0; at < KEYS; at++) {
                unsigned long key = (at * THREADS + id) % 3000 * 0x9e3779b97f4a7c15ul >> 52;
#ifdef AFTER
                own[key / 64] |= 1ul << key % 64;
#else
                bits[key / 64].fetch_or(1ul << key % 64, std::memory_order_relaxed);
#endif
            }
#ifdef AFTER
            for (int word = 0; word < WORDS; word++)
                bits[word].fetch_or(own[word], std::memory_order_relaxed);
#endif
        });
    for (auto &thread : threads)
        thread.join();
    int set = 0;
    for (auto &word : bits)
        set += std::popcount(word.load());
    std::printf("%d\n", set);
}
