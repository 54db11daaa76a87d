// Merge sort by tasks: each task sorts a half by a task of its own, down to blocks, and merges both into a second array.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <future>
#include <vector>

static void sort(std::uint32_t *keys, std::uint32_t *room, std::size_t count, int depth)
{
    if (depth == 0) {
        std::sort(keys, keys + count);
        return;
    }
    std::size_t half = count / 2;
    auto other = std::async(std::launch::async, sort, keys, room, half, depth - 1);
    sort(keys + half, room + half, count - half, depth - 1);
    other.get();
    std::merge(keys, keys + half, keys + half, keys + count, room);
    std::copy(room, room + count, keys);
}

int main()
{
    const std::size_t count = 1 << 19;
    std::vector<std::uint32_t> keys(count), room(count);
    std::uint64_t seed = 1;
    for (auto &key : keys) {
        seed = seed * 6364136223846793005u + 1;
        key = static_cast<std::uint32_t>(seed >> 33);
    }
    sort(keys.data(), room.data(), count, 3);
    std::printf("%d\n", std::is_sorted(keys.begin(), keys.end()));
}
