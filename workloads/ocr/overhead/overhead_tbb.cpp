// The same shapes as overhead.c in oneTBB alone: task_group.run of empty lambdas.
//
//   overhead_tbb CASE THREADS [TASKS]      prints: CASE TASKS ns-per-task
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/task_group.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

using oneapi::tbb::task_group;

static void chain(task_group &group, long left) {
    if (left > 0) group.run([&group, left] { chain(group, left - 1); });
}

static void tree(task_group &group, long levels) {
    if (levels <= 1) return;
    for (int i = 0; i < 2; i++) group.run([&group, levels] { tree(group, levels - 1); });
}

static void fork_join(long levels) {
    if (levels <= 1) return;
    task_group group;
    for (int i = 0; i < 2; i++) group.run([levels] { fork_join(levels - 1); });
    group.wait();
}

int main(int argc, char **argv) {
    std::string name = argc > 1 ? argv[1] : "chain";
    int threads = argc > 2 ? std::atoi(argv[2]) : 1;
    long tasks = argc > 3 ? std::atol(argv[3]) : 1000000, levels = 1;
    while ((1l << levels) - 1 < tasks) levels++;
    oneapi::tbb::global_control limit(oneapi::tbb::global_control::max_allowed_parallelism, threads);
    task_group group;
    auto start = std::chrono::steady_clock::now();
    if (name == "chain") {
        group.run([&] { chain(group, tasks - 1); });
    } else if (name == "independent") {
        for (long i = 0; i < tasks; i++) group.run([] {});
    } else if (name == "tree") {
        tasks = (1l << levels) - 1;
        group.run([&] { tree(group, levels); });
    } else if (name == "fork-join") {
        tasks = (1l << levels) - 1;
        group.run([&] { fork_join(levels); });
    } else {
        std::fprintf(stderr, "unknown case %s\n", name.c_str());
        return 2;
    }
    group.wait();
    std::chrono::duration<double, std::nano> ns = std::chrono::steady_clock::now() - start;
    std::printf("%s %ld %.1f\n", name.c_str(), tasks, ns.count() / double(tasks));
}
