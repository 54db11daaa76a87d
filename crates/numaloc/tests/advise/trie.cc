// Words are looked up in a trie that the main thread builds of a dictionary; AFTER: one copy of its nodes for every
// fourth thread, made by the first of them.
#include <barrier>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

constexpr int THREADS = 8, COPIES = 4, WORDS = 6000, LENGTH = 6, LETTERS = 8, LOOK_UPS = 30000;
struct Node {
    int next[LETTERS];
};

static int letter(unsigned long word, int at)
{
    return (word * 0x9e3779b97f4a7c15ul >> (40 + 3 * at)) % LETTERS;
}

int main()
{
    auto *nodes = new Node[WORDS * LENGTH + 1];
    int used = 1;
    nodes[0] = {};
    for (int word = 0; word < WORDS; word++)
        for (int at = 0, node = 0; at < LENGTH; at++) {
            int &next = nodes[node].next[letter(word, at)];
            if (next == 0) {
                nodes[used] = {};
                next = used++;
            }
            node = next;
        }
    Node *copies[COPIES];
    std::barrier<> made(THREADS);
    std::vector<long> found(THREADS * 16);
    std::vector<std::thread> threads;
    for (int id = 0; id < THREADS; id++)
        threads.emplace_back([&, id] {
            const Node *own = nodes;
#ifdef AFTER
            if (id < COPIES) {
                copies[id] = new Node[used];
                std::memcpy(copies[id], nodes, used * sizeof(Node));
            }
            made.arrive_and_wait();
            own = copies[id % COPIES];
#endif
            long matches = 0;
            for (int at = 0; at < LOOK_UPS; at++) {
                unsigned long word = (at * THREADS + id) * 7ul % (2 * WORDS);
                int node = 0, depth = 0;
                while (depth < LENGTH && (node = own[node].next[letter(word, depth)]) != 0)
                    depth++;
                matches += depth == LENGTH;
            }
            found[id * 16] = matches;
        });
    for (auto &thread : threads)
        thread.join();
    (void)copies;
    std::printf("%d %ld\n", used, found[0]);
}
