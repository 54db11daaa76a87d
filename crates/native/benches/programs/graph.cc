// Breadth-first search in a graph with some nodes that nearly all others lead to: threads look at the same parents and
// take places in one list.
#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

namespace {

constexpr int LOG = 18, NODES = 1 << LOG, DEGREE = 16, SEARCHES = 20;

std::vector<int> random_edges()
{
    std::vector<int> edges(std::size_t{NODES} * DEGREE);
    std::uint64_t state = 88172645463325252U;
    for (int &edge : edges) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        edge = int(state % NODES & (state >> 40) % NODES);
    }
    return edges;
}

/// The number of nodes that a search reaches, and of its steps.
std::pair<long, int> search(const std::vector<int> &edges, std::vector<int> &parent, int source)
{
#pragma omp parallel for
    for (int node = 0; node < NODES; node++)
        parent[node] = -1;
    std::vector<int> front{source}, next(NODES);
    parent[source] = source;
    long reached = 1;
    int steps = 0;
    for (; !front.empty(); steps++) {
        int found = 0;
#pragma omp parallel for schedule(dynamic, 64)
        for (std::size_t at = 0; at < front.size(); at++) {
            const int node = front[at];
            for (int n = 0; n < DEGREE; n++) {
                const int other = edges[std::size_t(node) * DEGREE + n];
                if (parent[other] == -1 && __sync_bool_compare_and_swap(&parent[other], -1, node))
                    next[__sync_fetch_and_add(&found, 1)] = other;
            }
        }
        front.assign(next.begin(), next.begin() + found);
        reached += found;
    }
    return {reached, steps};
}

} // namespace

int main()
{
    const std::vector<int> edges = random_edges();
    std::vector<int> parent(NODES);
    for (int n = 0; n < SEARCHES; n++) {
        const auto [reached, steps] = search(edges, parent, edges[1000 * n + 5]);
        std::printf("%ld %d\n", reached, steps);
    }
}
