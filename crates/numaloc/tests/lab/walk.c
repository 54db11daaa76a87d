/* Walks over 8 MiB line by line, eight times: 32 times the lab's private cache, so that every line is
 * fetched on every walk. With threads, each walks over pages of its own. Built with and without OpenMP. */
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    long bad = 0, status = argc > 1 ? atol(argv[1]) : 0;
#pragma omp parallel reduction(+ : bad)
    {
        const long bytes = 8 << 20;
        volatile char *memory = aligned_alloc(4096, bytes);
        if (memory)
            for (int walk = 0; walk < 8; walk++)
                for (long at = 0; at < bytes; at += 64) {
                    bad += memory[at] != (char)(walk ? walk - 1 : memory[at]);
                    memory[at] = (char)walk;
                }
        else
            bad++;
    }
    puts("to stdout");
    fputs("to stderr\n", stderr);
    return bad ? 99 : (int)status;
}
