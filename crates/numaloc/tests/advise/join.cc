// A hash join: the main thread builds a table of one relation, threads probe it with the other; AFTER: the table's pages
// are dealt over the nodes.
#include <cstdio>
#include <cstdint>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

constexpr long SLOTS = 1 << 18, ROWS = 1 << 17, PROBES = 60000;
constexpr int THREADS = 8, INTERLEAVE = 3;
struct Slot {
    uint64_t key, value;
};

static uint64_t mixed(uint64_t key)
{
    key = (key ^ (key >> 31)) * 0x9e3779b97f4a7c15ul;
    return key ^ (key >> 29);
}

int main()
{
    size_t bytes = SLOTS * sizeof(Slot);
    void *room = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
#ifdef AFTER
    unsigned long nodes = 1;
    syscall(SYS_mbind, room, bytes, INTERLEAVE, &nodes, 64ul, 0u);
#endif
    Slot *table = static_cast<Slot *>(room);
    for (long row = 1; row <= ROWS; row++) {
        uint64_t at = mixed(row) % SLOTS;
        while (table[at].key)
            at = (at + 1) % SLOTS;
        table[at] = {uint64_t(row), uint64_t(2 * row)};
    }
    std::vector<uint64_t> sums(THREADS * 16);
    std::vector<std::thread> threads;
    for (int id = 0; id < THREADS; id++)
        threads.emplace_back([&, id] {
            uint64_t sum = 0, state = id * 7919 + 1;
            for (long probe = 0; probe < PROBES; probe++) {
                state = state * 6364136223846793005ul + 1442695040888963407ul;
                uint64_t key = (state >> 33) % (2 * ROWS) + 1, at = mixed(key) % SLOTS;
                while (table[at].key && table[at].key != key)
                    at = (at + 1) % SLOTS;
                sum += table[at].value;
            }
            sums[id * 16] = sum;
        });
    for (auto &thread : threads)
        thread.join();
    std::printf("%lu\n", sums[0]);
}
