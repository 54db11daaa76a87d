// Runs each generated block from a defined state, and prints the state that it leaves.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct state {
    uint64_t r[16], flags, unused;
    uint8_t v[16][32];
} state, out;

extern void (*const blocks[])(void);
extern const uint64_t count;
extern uint8_t arena[4096];
extern uint64_t stack_pointer;
void run_block(void (*block)(void), struct state *from);

static uint64_t hash(const void *from, size_t len)
{
    const uint8_t *bytes = from;
    uint64_t h = 14695981039346656037u;
    for (size_t n = 0; n < len; n++) h = (h ^ bytes[n]) * 1099511628211u;
    return h;
}

// Takes the number of times that each block is run: the second and third time, branches are linked.
int main(int arguments, char **argument)
{
    uint64_t seed = 88172645463325252u;
    uint64_t times = arguments > 1 ? strtoul(argument[1], 0, 10) : 3;
    for (uint64_t n = 0; n < times * count; n++) {
        uint64_t b = n % count;
        uint64_t *words[2] = {state.r, (uint64_t *)arena};
        size_t lens[2] = {sizeof state / 8, sizeof arena / 8};
        for (int w = 0; w < 2; w++)
            for (size_t n = 0; n < lens[w]; n++) {
                seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
                // Small numbers, numbers with small exponents, and anything.
                uint64_t value = seed % 3 == 0 ? seed >> 56 : seed % 3 == 1 ? (seed & 0x800fffffffffffffu) | 0x3ff0000000000000u : seed;
                words[w][n] = value;
            }
        state.flags = (state.flags & 0x8d5) | 2;
        state.r[15] = (uint64_t)(uintptr_t)arena;
        run_block(blocks[b], &state);
        out.r[4] -= stack_pointer;
        printf("%lu", (unsigned long)b);
        for (int n = 0; n < 16; n++) printf(" %lx", (unsigned long)out.r[n]);
        printf(" flags %lx vectors %lx memory %lx\n", (unsigned long)out.flags & 0xcd5, (unsigned long)hash(out.v, sizeof out.v),
               (unsigned long)hash(arena, sizeof arena));
    }
    return 0;
}
