// k-means: threads add points to sums and counts that all of them share; AFTER: each adds to sums of its own, which are
// joined at the end.
#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

constexpr int THREADS = 8, K = 4;
constexpr long POINTS = 20000, ROUNDS = 2;
static std::atomic<long> sums[K], counts[K];

int main()
{
    std::vector<std::thread> threads;
    for (int id = 0; id < THREADS; id++)
        threads.emplace_back([id] {
            long own_sums[K] = {}, own_counts[K] = {};
            for (long round = 0; round < ROUNDS; round++)
                for (long point = 0; point < POINTS; point++) {
                    unsigned long mixed = (point * THREADS + id + 1) * 0x9e3779b97f4a7c15ul;
                    int nearest = (mixed >> 40) % K;
                    long value = mixed >> 50;
#ifdef AFTER
                    own_sums[nearest] += value;
                    own_counts[nearest]++;
#else
                    sums[nearest].fetch_add(value, std::memory_order_relaxed);
                    counts[nearest].fetch_add(1, std::memory_order_relaxed);
#endif
                }
#ifdef AFTER
            for (int k = 0; k < K; k++) {
                sums[k] += own_sums[k];
                counts[k] += own_counts[k];
            }
#else
            (void)own_sums, (void)own_counts;
#endif
        });
    for (auto &thread : threads)
        thread.join();
    std::printf("%ld %ld\n", sums[0].load(), counts[0].load());
}
