// Threads take pieces of work by one counter; AFTER: each takes 64 pieces at a time.
#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

constexpr int THREADS = 8;
constexpr long PIECES = 160000;
#ifdef AFTER
constexpr long AT_ONCE = 64;
#else
constexpr long AT_ONCE = 1;
#endif
alignas(64) static std::atomic<long> next;
struct alignas(64) Sum {
    double value;
};
static Sum sums[THREADS];

static double piece(long number)
{
    double value = number + 1;
    for (int round = 0; round < 10; round++)
        value = value * 0.5 + 1;
    return value;
}

int main()
{
    std::vector<std::thread> threads;
    for (int id = 0; id < THREADS; id++)
        threads.emplace_back([id] {
            for (;;) {
                long first = next.fetch_add(AT_ONCE);
                if (first >= PIECES)
                    return;
                for (long at = first; at < first + AT_ONCE && at < PIECES; at++)
                    sums[id].value += piece(at);
            }
        });
    for (auto &thread : threads)
        thread.join();
    std::printf("%g\n", sums[0].value);
}
