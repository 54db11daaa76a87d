// C++ glue between the runtime and oneTBB: one task group and one arena per run.
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_group.h>

#include <memory>
#include <utility>

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

// A waiting task: its thread runs other tasks until `numaloc_tbb_release`. The group counts a task that is never run, and
// destroying that task ends the wait; so any thread may release it, and no thread has to be free to run a task.
struct Waiting {
    oneapi::tbb::task_group group;
    oneapi::tbb::task_handle last = group.defer([] {});
};

Waiting *numaloc_tbb_hold() { return new Waiting; }

// Returns once `waiting` is released, and deletes it.
void numaloc_tbb_help(Waiting *waiting) {
    waiting->group.wait();
    delete waiting;
}

// Called once. The task is moved out first, because `waiting` may be deleted as soon as it ends.
void numaloc_tbb_release(Waiting *waiting) { oneapi::tbb::task_handle last = std::move(waiting->last); }

}
