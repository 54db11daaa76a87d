// Half of the threads put blocks of numbers into one queue, the other half take and sum them.
// Arguments: THREADS [BLOCKS].
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>
int main(int argc, char **argv) {
    int threads = std::atoi(argv[1]), makers = threads / 2 > 0 ? threads / 2 : 1, takers = threads - makers;
    if (takers < 1) takers = 1;
    long blocks = argc > 2 ? std::atol(argv[2]) : 600, length = 256, left = makers, total = 0;
    std::mutex mutex;
    std::condition_variable more;
    std::deque<std::unique_ptr<long[]>> queue;
    std::vector<std::thread> workers;
    for (int me = 0; me < makers; me++)
        workers.emplace_back([&, me] {
            for (long b = blocks * me / makers; b < blocks * (me + 1) / makers; b++) {
                std::unique_ptr<long[]> block(new long[length]);
                for (long i = 0; i < length; i++) block[i] = b + i;
                std::lock_guard<std::mutex> lock(mutex);
                queue.push_back(std::move(block));
                more.notify_one();
            }
            std::lock_guard<std::mutex> lock(mutex);
            if (--left == 0) more.notify_all();
        });
    for (int me = 0; me < takers; me++)
        workers.emplace_back([&] {
            long sum = 0;
            for (;;) {
                std::unique_lock<std::mutex> lock(mutex);
                more.wait(lock, [&] { return !queue.empty() || left == 0; });
                if (queue.empty()) break;
                auto block = std::move(queue.front());
                queue.pop_front();
                lock.unlock();
                for (long i = 0; i < length; i++) sum += block[i];
            }
            std::lock_guard<std::mutex> lock(mutex);
            total += sum;
        });
    for (auto &worker : workers) worker.join();
    std::printf("%ld\n", total);
}
