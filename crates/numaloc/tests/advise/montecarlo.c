/* Monte Carlo: each thread has the state of its random numbers in one array, as rand_r and erand48 want it; AFTER: each
   state is on a line of its own. */
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 8, DRAWS = 12000 };
struct state {
    unsigned short words[3];
#ifdef AFTER
} __attribute__((aligned(64)));
#else
};
#endif
static struct state states[THREADS];

static __attribute__((noinline)) double draw(unsigned short *words)
{
    unsigned long state = words[0] | (unsigned long)words[1] << 16 | (unsigned long)words[2] << 32;
    state = state * 0x5deece66dul + 11;
    words[0] = state, words[1] = state >> 16, words[2] = state >> 32;
    return (state & 0xffffffffffff) / 281474976710656.0;
}

int main(void)
{
    long inside = 0;
#pragma omp parallel for schedule(static, 1) reduction(+ : inside)
    for (int id = 0; id < THREADS; id++) {
        states[id].words[0] = id * 77 + 1;
        for (int at = 0; at < DRAWS; at++) {
            double x = draw(states[id].words), y = draw(states[id].words);
            inside += x * x + y * y < 1;
        }
    }
    printf("%g\n", 4.0 * inside / THREADS / DRAWS);
    return 0;
}
