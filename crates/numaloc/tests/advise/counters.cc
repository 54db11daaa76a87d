// Each thread counts in its entry of an array of small structures; AFTER: entries lie on lines of their own.
#include <cstdio>
#include <thread>
#include <vector>

#ifndef N
#define N 30000
#endif

#ifdef AFTER
struct alignas(64) Counter {
#else
struct Counter {
#endif
    volatile long hits, misses;
};
static Counter counters[8];

int main()
{
    std::vector<std::thread> threads;
    for (int id = 0; id < 8; id++)
        threads.emplace_back([id] {
            for (long at = 0; at < N; at++) {
                counters[id].hits = counters[id].hits + 1;
                if (at % 3 == 0)
                    counters[id].misses = counters[id].misses + 1;
            }
        });
    for (auto &thread : threads)
        thread.join();
    long sum = 0;
    for (auto &counter : counters)
        sum += counter.hits + counter.misses;
    std::printf("%ld\n", sum);
}
