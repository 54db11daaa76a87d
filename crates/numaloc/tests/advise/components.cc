// Connected components by the smallest label of the neighbours; the main thread reads in edges and labels, AFTER: their
// pages are dealt over the nodes.
#include <cstdio>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

constexpr long VERTICES = 1 << 16, EDGES = 3 * VERTICES, INTERLEAVE = 3;
struct Edge {
    int from, to;
};

template <class T> static T *array(long length)
{
    void *memory = mmap(nullptr, sizeof(T) * length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
#ifdef AFTER
    unsigned long nodes = 1;
    syscall(SYS_mbind, memory, sizeof(T) * length, INTERLEAVE, &nodes, 64ul, 0u);
#endif
    return (T *)memory;
}

int main()
{
    Edge *edges = array<Edge>(EDGES);
    int *labels = array<int>(VERTICES);
    unsigned long state = 1;
    for (long at = 0; at < EDGES; at++) {
        state = state * 6364136223846793005ul + 1442695040888963407ul;
        edges[at] = {int(state >> 33 & (VERTICES - 1)), int(state >> 17 & (VERTICES - 1))};
    }
    for (long vertex = 0; vertex < VERTICES; vertex++)
        labels[vertex] = vertex;
    for (int round = 0; round < 3; round++) {
#pragma omp parallel for schedule(static)
        for (long at = 0; at < EDGES; at++) {
            auto [from, to] = edges[at];
            int a = __atomic_load_n(&labels[from], __ATOMIC_RELAXED), b = __atomic_load_n(&labels[to], __ATOMIC_RELAXED);
            if (a < b)
                __atomic_store_n(&labels[to], a, __ATOMIC_RELAXED);
            else if (b < a)
                __atomic_store_n(&labels[from], b, __ATOMIC_RELAXED);
        }
#pragma omp parallel for schedule(static)
        for (long vertex = 0; vertex < VERTICES; vertex++) {
            int label = __atomic_load_n(&labels[vertex], __ATOMIC_RELAXED);
            int above = __atomic_load_n(&labels[label], __ATOMIC_RELAXED);
            if (above < label)
                __atomic_store_n(&labels[vertex], above, __ATOMIC_RELAXED);
        }
    }
    std::printf("%d\n", labels[100]);
}
