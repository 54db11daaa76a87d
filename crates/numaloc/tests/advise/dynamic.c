/* Collatz lengths in a loop whose iterations are dealt one by one (schedule(dynamic)); AFTER: 64 at a time. The
   counter is the run-time library's, which hands out the iterations. */
#include <stdio.h>
#include <stdlib.h>

enum { N = 60000 };
#ifdef AFTER
enum { CHUNK = 64 };
#else
enum { CHUNK = 1 };
#endif

int main(void)
{
    int *lengths = malloc(sizeof *lengths * N);
#pragma omp parallel for schedule(dynamic, CHUNK)
    for (long start = 1; start <= N; start++) {
        int length = 0;
        for (long at = start; at != 1; at = at % 2 ? 3 * at + 1 : at / 2)
            length++;
        lengths[start - 1] = length;
    }
    printf("%d\n", lengths[26]);
    return 0;
}
