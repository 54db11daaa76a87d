// Ranks of pages by repeated sums over incoming links; main builds the graph, std::thread workers take blocks of
// vertices and meet at a barrier. Arguments: THREADS [VERTICES].
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

class Barrier {
public:
    explicit Barrier(int size) : size_(size) {}
    void wait() {
        std::unique_lock<std::mutex> lock(mutex_);
        long turn = turn_;
        if (++here_ == size_) {
            here_ = 0;
            turn_++;
            all_.notify_all();
        } else {
            all_.wait(lock, [&] { return turn_ != turn; });
        }
    }

private:
    std::mutex mutex_;
    std::condition_variable all_;
    int size_, here_ = 0;
    long turn_ = 0;
};

int main(int argc, char **argv) {
    int threads = std::atoi(argv[1]);
    long n = argc > 2 ? std::atol(argv[2]) : 12000, degree = 8;
    std::vector<unsigned> from(n * degree);
    unsigned long seed = 1;
    for (auto &source : from) {
        seed = seed * 6364136223846793005ul + 1442695040888963407ul;
        source = (seed >> 33) % n;
    }
    std::vector<double> rank(n, 1.0 / n), next(n);
    Barrier barrier(threads);
    auto work = [&](int me) {
        double *now = rank.data(), *then = next.data();
        for (int turn = 0; turn < 2; turn++) {
            for (long v = n * me / threads; v < n * (me + 1) / threads; v++) {
                double sum = 0;
                for (long e = 0; e < degree; e++) sum += now[from[v * degree + e]];
                then[v] = 0.15 / n + 0.85 * sum / degree;
            }
            barrier.wait();
            std::swap(now, then);
        }
    };
    std::vector<std::thread> workers;
    for (int me = 0; me < threads; me++) workers.emplace_back(work, me);
    for (auto &worker : workers) worker.join();
    std::printf("%g\n", rank[1]);
}
