// Pairs of a producer and a consumer with a ring for each pair, whose two indices share a line; AFTER: a line for each.
// Each index is used by both threads, so that no bytes are shared falsely, and two lines move instead of one.
#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

constexpr int PAIRS = 4;
constexpr long ITEMS = 10000, SLOTS = 1024;
struct Ring {
#ifdef AFTER
    alignas(64) std::atomic<long> head;
    alignas(64) std::atomic<long> tail;
    alignas(64) long slots[SLOTS];
#else
    std::atomic<long> head, tail;
    long slots[SLOTS];
#endif
};
static Ring rings[PAIRS];

int main()
{
    std::vector<std::thread> threads;
    std::vector<long> sums(PAIRS * 16);
    for (int pair = 0; pair < PAIRS; pair++) {
        Ring &ring = rings[pair];
        threads.emplace_back([&ring] {
            for (long item = 0; item < ITEMS; item++) {
                while (item - ring.tail.load(std::memory_order_acquire) >= SLOTS)
                    std::this_thread::yield();
                ring.slots[item % SLOTS] = item;
                ring.head.store(item + 1, std::memory_order_release);
            }
        });
        threads.emplace_back([&ring, &sums, pair] {
            long sum = 0;
            for (long item = 0; item < ITEMS; item++) {
                while (ring.head.load(std::memory_order_acquire) <= item)
                    std::this_thread::yield();
                sum += ring.slots[item % SLOTS];
                ring.tail.store(item + 1, std::memory_order_release);
            }
            sums[pair * 16] = sum;
        });
    }
    for (auto &thread : threads)
        thread.join();
    std::printf("%ld\n", sums[0]);
}
