// C++ glue between the runtime and oneTBB: one task group and one arena per run.
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/task.h>
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_group.h>

#include <memory>

namespace {
std::unique_ptr<oneapi::tbb::task_group> group;
std::unique_ptr<oneapi::tbb::task_group> &the_group() {
    if (!group) group = std::make_unique<oneapi::tbb::task_group>();
    return group;
}
}  // namespace

extern "C" {

// Runs `body(argument)` in an arena of `workers` threads, which exists until it returns.
void numaloc_tbb_run(int workers, void (*body)(void *), void *argument) {
    oneapi::tbb::global_control limit(oneapi::tbb::global_control::max_allowed_parallelism, workers);
    oneapi::tbb::task_arena arena(workers);
    arena.execute([=] { body(argument); });
    group.reset();
}

void numaloc_tbb_spawn(void (*body)(void *), void *argument) {
    the_group()->run([=] { body(argument); });
}

void numaloc_tbb_wait() { the_group()->wait(); }

// A waiting task leaves its thread to other tasks. `begun` gets what `numaloc_tbb_resume` needs, once; the call returns
// after that, on any thread.
void numaloc_tbb_suspend(void (*begun)(void *argument, void *point), void *argument) {
    oneapi::tbb::task::suspend(
        [=](oneapi::tbb::task::suspend_point point) { begun(argument, point); });
}

void numaloc_tbb_resume(void *point) {
    oneapi::tbb::task::resume(static_cast<oneapi::tbb::task::suspend_point>(point));
}

}
