// Threads transform blocks of an array dealt in turn, that the main thread reads in; AFTER: each thread reads its own.
#include <cstdio>
#include <thread>
#include <vector>

constexpr int THREADS = 6;
constexpr long BLOCKS = 90, BLOCK = 4096, ROUNDS = 5;

static void fill(unsigned *block, long number)
{
    unsigned state = number + 1;
    for (long at = 0; at < BLOCK; at++) {
        state = state * 1664525 + 1013904223;
        block[at] = state;
    }
}

int main()
{
    auto *data = static_cast<unsigned *>(operator new(sizeof(unsigned) * BLOCKS * BLOCK, std::align_val_t(4096)));
    unsigned results[THREADS * 16] = {};
#ifndef AFTER
    for (long number = 0; number < BLOCKS; number++)
        fill(data + number * BLOCK, number);
#endif
    std::vector<std::thread> threads;
    for (int id = 0; id < THREADS; id++)
        threads.emplace_back([&, id] {
#ifdef AFTER
            for (long number = id; number < BLOCKS; number += THREADS)
                fill(data + number * BLOCK, number);
#endif
            for (long round = 0; round < ROUNDS; round++)
                for (long number = id; number < BLOCKS; number += THREADS) {
                    unsigned *block = data + number * BLOCK;
                    for (long at = 1; at < BLOCK; at++)
                        block[at] ^= block[at - 1] >> 3;
                    results[id * 16] += block[BLOCK - 1];
                }
        });
    for (auto &thread : threads)
        thread.join();
    std::printf("%u\n", results[0]);
}
