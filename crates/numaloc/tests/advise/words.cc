// Word lengths of a text counted in one table of atomics; AFTER: a table for each thread, added up at the end.
#include <atomic>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

constexpr int THREADS = 8, LENGTHS = 64;
static std::atomic<long> counts[LENGTHS];

int main()
{
    std::string text(1 << 19, 'x');
    unsigned state = 1;
    for (auto &letter : text) {
        state = state * 1664525 + 1013904223;
        letter = state >> 29 ? 'x' : ' ';
    }
    std::vector<std::thread> threads;
    for (int id = 0; id < THREADS; id++)
        threads.emplace_back([&, id] {
            long own[LENGTHS] = {};
            int length = 0;
            size_t part = text.size() / THREADS;
            for (size_t at = id * part; at < (id + 1) * part; at++) {
                if (text[at] != ' ') {
                    length = length < LENGTHS - 1 ? length + 1 : length;
                    continue;
                }
#ifdef AFTER
                static_cast<volatile long *>(own)[length]++;
#else
                counts[length].fetch_add(1, std::memory_order_relaxed);
#endif
                length = 0;
            }
            for (int at = 0; at < LENGTHS; at++)
                if (own[at])
                    counts[at] += own[at];
        });
    for (auto &thread : threads)
        thread.join();
    std::printf("%ld\n", counts[2].load());
}
