// Join of two tables: all threads insert their rows into one open-addressing table with compare-and-swap, then look
// up their part of the other. Arguments: THREADS [ROWS].
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>
int main(int argc, char **argv) {
    int threads = std::atoi(argv[1]);
    long n = argc > 2 ? std::atol(argv[2]) : 30000, room = 1;
    while (room < 2 * n) room *= 2;
    std::vector<std::atomic<unsigned long>> table(room);
    std::atomic<long> hits{0}, arrived{0};
    auto place = [&](unsigned long key) { return (key * 11400714819323198485ul) >> 20 & (room - 1); };
    std::vector<std::thread> workers;
    for (int me = 0; me < threads; me++)
        workers.emplace_back([&, me] {
            long first = n * me / threads, last = n * (me + 1) / threads, found = 0;
            for (long i = first; i < last; i++)
                for (unsigned long key = 2 * i + 1, at = place(key);; at = (at + 1) & (room - 1)) {
                    unsigned long empty = 0;
                    if (table[at].compare_exchange_strong(empty, key)) break;
                }
            arrived++;
            while (arrived < threads) std::this_thread::yield();
            for (long i = first; i < last; i++)
                for (unsigned long key = (i * 7919) % (2 * n), at = place(key);; at = (at + 1) & (room - 1)) {
                    unsigned long kept = table[at];
                    found += kept == key;
                    if (kept == key || kept == 0) break;
                }
            hits += found;
        });
    for (auto &worker : workers) worker.join();
    std::printf("%ld\n", hits.load());
}
