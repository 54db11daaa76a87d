// The few lines of C++ between the runtime and oneTBB. One task group and one arena for a run.
#include <oneapi/tbb/global_control.h>
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

// Runs `body(argument)` in an arena of so many threads, which stays until it returns.
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

// The calling task waits: this thread runs other tasks of its arena until `over(argument)`. A group with a task that
// is not run yet keeps the thread in oneTBB's loop; the question is asked by tasks that are enqueued, because
// the loop turns to those only when the thread has nothing else.
void numaloc_tbb_help(int (*over)(void *), void *argument) {
    struct Waiting {
        oneapi::tbb::task_group group;
        oneapi::tbb::task_arena arena{oneapi::tbb::task_arena::attach{}};
        oneapi::tbb::task_handle last;
        int (*over)(void *);
        void *argument;
        static void ask(Waiting *waiting) {
            if (waiting->over(waiting->argument))
                waiting->group.run(std::move(waiting->last));
            else
                waiting->arena.enqueue([waiting] { ask(waiting); });
        }
    } waiting;
    waiting.over = over;
    waiting.argument = argument;
    waiting.last = waiting.group.defer([] {});
    Waiting *pointer = &waiting;
    waiting.arena.enqueue([pointer] { Waiting::ask(pointer); });
    waiting.group.wait();
}

}
