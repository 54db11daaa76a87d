/* Regions that are handed none to twelve arguments; a region within a region; one that runs on one thread only; a reduction, an
 * ordered loop and a critical section in each. */
#include <omp.h>
#include <stdio.h>

int main(int one_argument, char **arguments)
{
    (void)arguments;
    long a = one_argument, b = 2 * a, c = 3 * a, d = 4 * a, e = 5 * a, f = 6 * a, g = 7 * a, h = 8 * a, i = 9 * a, j = 10 * a,
         k = 11 * a, sum = 0, order = 0, held = 0, counted = 0;
    double x = 0.5;
    omp_lock_t lock;
    omp_init_lock(&lock);
#pragma omp parallel
    omp_get_thread_num();
#pragma omp parallel num_threads(4) reduction(+ : sum)
    sum += a;
#pragma omp parallel num_threads(4) reduction(+ : sum)
    sum += a + b;
#pragma omp parallel num_threads(4) reduction(+ : sum)
    sum += a + b + c;
#pragma omp parallel num_threads(4) reduction(+ : sum)
    sum += a + b + c + d;
#pragma omp parallel num_threads(4) reduction(+ : sum)
    sum += a + b + c + d + e;
#pragma omp parallel num_threads(8) reduction(+ : sum) firstprivate(a, b, x)
    sum += a + b + c + d + e + f + g + h + i + j + (long)(2 * x);
#pragma omp parallel num_threads(8) reduction(+ : sum, x) if (a > 0)
    {
        sum += a + b + c + d + e + f + g + h + i + j + k;
        x += 1;
#pragma omp for ordered schedule(dynamic)
        for (int n = 0; n < 40; n++)
#pragma omp ordered
            order = order * 31 % 1009 + n;
#pragma omp for reduction(+ : counted)
        for (int n = 0; n < 40; n++)
            counted++;
#pragma omp parallel num_threads(2) reduction(+ : sum) if (a > 1)
        {
            sum++;
#pragma omp barrier
        }
        long one = 0;
#pragma omp single copyprivate(one)
        one = 1;
#pragma omp critical
        counted += one;
        omp_set_lock(&lock);
        held++;
        omp_unset_lock(&lock);
    }
    printf("%ld %ld %ld %ld %.1f\n", sum, order, counted, held, x);
    return 0;
}
