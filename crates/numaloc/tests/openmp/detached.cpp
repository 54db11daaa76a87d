// Detached tasks with data that must be copied by its constructor. Prints sums that are the same in any order.
#include <cstdio>
#include <omp.h>
#include <string>

static long copied, after;

int main()
{
    for (int round = 0; round < 50; round++) {
#pragma omp parallel num_threads(3)
#pragma omp single
        for (int i = 0; i < 10; i++) {
            std::string text(40 + i, 'x');
            omp_event_handle_t event;
#pragma omp task detach(event) firstprivate(text) depend(out : copied)
            {
#pragma omp atomic
                copied += static_cast<long>(text.size());
                if (i % 2 == 0)
                    omp_fulfill_event(event);
            }
            if (i % 4 == 1)
                omp_fulfill_event(event);
            if (i % 4 == 3) {
#pragma omp task firstprivate(event)
                omp_fulfill_event(event);
            }
#pragma omp task depend(in : copied) firstprivate(text)
            {
#pragma omp atomic
                after += static_cast<long>(text.size());
            }
        }
    }
    std::printf("%ld %ld\n", copied, after);
}
