/* Measures the cost of `numaloc run` for one kind of work:
 *   cost nothing          the start-up alone
 *   cost cpu              arithmetic on a small array
 *   cost malloc-free N    N times malloc and free of 16 to 64 bytes, one byte written
 *   cost malloc-keep N    N times malloc, kept until the end, one byte written: the heap grows
 *   cost read N           N times read() of 4 KiB of a cached file
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static unsigned long state = 42;

static size_t small_size(void)
{
    state = state * 6364136223846793005UL + 1442695040888963407UL;
    return 16 + (state >> 33) % 49;
}

static int compute(long rounds)
{
    static double numbers[4096];
    for (long round = 0; round < rounds; round++)
        for (int i = 0; i < 4096; i++)
            numbers[i] = numbers[i] * 0.999 + i;
    return numbers[7] < 0;
}

static int allocate(long blocks, int keep)
{
    for (long i = 0; i < blocks; i++) {
        char *block = malloc(small_size());
        if (!block)
            return 1;
        *(volatile char *)block = (char)i;
        if (!keep)
            free(block);
    }
    return 0;
}

static int read_again(const char *path, long times)
{
    static char buffer[4096];
    int file = open(path, O_RDONLY);
    if (file < 0)
        return 1;
    for (long i = 0; i < times; i++)
        if (read(file, buffer, sizeof buffer) < 0)
            return 1;
    return close(file);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    long times = argc > 2 ? atol(argv[2]) : 0;
    if (strcmp(what, "nothing") == 0)
        return 0;
    if (strcmp(what, "cpu") == 0)
        return compute(times);
    if (strcmp(what, "malloc-free") == 0)
        return allocate(times, 0);
    if (strcmp(what, "malloc-keep") == 0)
        return allocate(times, 1);
    if (strcmp(what, "read") == 0)
        return read_again(argv[0], times);
    fprintf(stderr, "usage: cost nothing|cpu|malloc-free|malloc-keep|read [N]\n");
    return 2;
}
