// Rays march through a volume that the main thread loads and nobody writes any more; AFTER: the volume's pages are dealt
// over the nodes.
#include <cstdio>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

constexpr int SIDE = 96, THREADS = 8, IMAGE = 64, INTERLEAVE = 3;

int main()
{
    size_t bytes = sizeof(float) * SIDE * SIDE * SIDE;
    auto *volume = (float *)mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
#ifdef AFTER
    unsigned long nodes = 1;
    syscall(SYS_mbind, volume, bytes, INTERLEAVE, &nodes, 64ul, 0u);
#endif
    for (long at = 0; at < (long)SIDE * SIDE * SIDE; at++)
        volume[at] = (at * 31 % 64) * 0.001f;
    std::vector<float> image(IMAGE * IMAGE);
    std::vector<std::thread> threads;
    for (int id = 0; id < THREADS; id++)
        threads.emplace_back([&, id] {
            for (int row = id; row < IMAGE; row += THREADS)
                for (int column = 0; column < IMAGE; column++) {
                    float x = row * 1.4f, y = column * 1.4f, z = 0, light = 1, dx = 0.01f * (column - 32), dy = 0.01f * (row - 32);
                    for (int step = 0; step < SIDE; step++) {
                        int i = (int)x, j = (int)y, k = (int)z;
                        if (i < 0 || j < 0 || i >= SIDE || j >= SIDE || k >= SIDE)
                            break;
                        light *= 1 - volume[(k * SIDE + j) * SIDE + i];
                        x += dx, y += dy, z += 1;
                    }
                    image[row * IMAGE + column] = light;
                }
        });
    for (auto &thread : threads)
        thread.join();
    std::printf("%g\n", image[100]);
}
