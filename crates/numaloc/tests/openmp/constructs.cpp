// Tasks of every kind, and what they leave behind: data that must be copied by its constructor, loops, reductions, tasks within tasks,
// tasks that run at once. Prints sums that are the same in any order.
#include <cstdio>
#include <omp.h>
#include <string>
#include <vector>

struct alignas(64) Data {
    std::string text;
    std::vector<long> cells;
};

static long fib(int n)
{
    long a, b;
    if (n < 2)
        return n;
#pragma omp task shared(a) firstprivate(n) if (n > 5) final(n < 3) mergeable
    a = fib(n - 1);
#pragma omp task shared(b) firstprivate(n) untied
    b = fib(n - 2);
#pragma omp taskwait
    return a + b;
}

static long copied, looped, reduced, grouped, chained, nested, ull, alone;

static void tasks()
{
    Data data{"forty-two bytes of text, more than fits in", {1, 2, 3}};
    for (int i = 0; i < 20; i++)
#pragma omp task firstprivate(data) priority(i)
    {
        data.cells.push_back(static_cast<long>(data.text.size()) + i);
        long sum = 0;
        for (long cell : data.cells)
            sum += cell;
        sum += reinterpret_cast<unsigned long>(&data) % alignof(Data);
#pragma omp atomic
        copied += sum;
    }
    data.text.clear();
    data.cells.clear();
#pragma omp taskloop grainsize(7) firstprivate(data)
    for (int i = 0; i < 1000; i++) {
#pragma omp atomic
        looped += i + static_cast<long>(data.cells.size());
    }
#pragma omp taskloop num_tasks(9) nogroup
    for (unsigned long long i = 1; i <= 100; i++) {
#pragma omp atomic
        ull += static_cast<long>(i);
    }
#pragma omp taskwait
#pragma omp taskloop reduction(+ : reduced) grainsize(10)
    for (int i = 0; i < 500; i++)
        reduced += i;
#pragma omp taskgroup task_reduction(+ : grouped)
    {
        for (int i = 0; i < 30; i++)
#pragma omp task in_reduction(+ : grouped)
            grouped += i;
    }
    long chain = 1;
    for (int i = 0; i < 10; i++) {
#pragma omp task depend(inout : chain) shared(chain)
        chain = chain * 3 % 1000003;
#pragma omp task depend(in : chain) shared(chain)
        {
#pragma omp atomic
            chained += chain;
        }
    }
#pragma omp task depend(in : chain) if (0) shared(chain)
    {
#pragma omp atomic
        chained += chain;
    }
#pragma omp taskwait
#pragma omp taskgroup
    for (int i = 0; i < 5; i++)
#pragma omp task
    {
#pragma omp taskgroup
        for (int j = 0; j < 5; j++)
#pragma omp task
        {
#pragma omp taskyield
#pragma omp atomic
            nested += j;
        }
#pragma omp parallel num_threads(2)
#pragma omp single
#pragma omp task
        {
#pragma omp atomic
            nested += 100;
        }
    }
}

int main()
{
    long result = 0;
    // Outside a region tasks run at once.
#pragma omp task shared(alone)
    alone = fib(6);
#pragma omp taskloop
    for (int i = 0; i < 10; i++)
        alone += i;
    for (int round = 0; round < 20; round++) {
#pragma omp parallel
#pragma omp single
        {
            result += fib(12);
            tasks();
        }
    }
    std::printf("%ld %ld %ld %ld %ld %ld %ld %ld %ld\n", result, copied, looped, ull, reduced, grouped, chained, nested, alone);
}
