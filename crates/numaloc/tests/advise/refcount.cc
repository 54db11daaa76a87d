// Requests are served with a configuration that each takes a shared pointer of; AFTER: each thread keeps one.
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

constexpr int THREADS = 8, REQUESTS = 6000, ROUTES = 512;
struct Configuration {
    int routes[ROUTES];
};
static std::shared_ptr<const Configuration> configuration;

static long serve(const std::shared_ptr<const Configuration> &current, long request)
{
    long cost = 0;
    for (int hop = 0; hop < 8; hop++) {
        request = current->routes[(request * 31 + hop) % ROUTES];
        cost += request;
    }
    return cost;
}

int main()
{
    auto made = std::make_shared<Configuration>();
    for (int at = 0; at < ROUTES; at++)
        made->routes[at] = at * 7 % ROUTES;
    configuration = made;
    std::vector<long> costs(THREADS * 16);
    std::vector<std::thread> threads;
    for (int id = 0; id < THREADS; id++)
        threads.emplace_back([&, id] {
            long cost = 0;
#ifdef AFTER
            std::shared_ptr<const Configuration> current = configuration;
#endif
            for (long request = 0; request < REQUESTS; request++) {
#ifndef AFTER
                std::shared_ptr<const Configuration> current = configuration;
#endif
                cost += serve(current, request + id);
            }
            costs[id * 16] = cost;
        });
    for (auto &thread : threads)
        thread.join();
    std::printf("%ld\n", costs[0]);
}
