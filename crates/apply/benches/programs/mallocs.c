/* 10^6 small mallocs of 16 to 271 bytes, each written, a window of 4096 kept, as typical programs do. With
 * the argument "keep" none is freed before the end, so the heap grows by brk all the time. */
#include <stdlib.h>
#include <string.h>

#define KEEP 4096

int main(int argc, char **argv)
{
    static char *window[1000000];
    const int keep = argc > 1 && strcmp(argv[1], "keep") == 0;
    unsigned seed = 1, sum = 0;
    for (int i = 0; i < 1000000; i++) {
        int at = keep ? i : i % KEEP;
        seed = seed * 1103515245 + 12345;
        size_t bytes = 16 + (seed >> 16) % 256;
        free(window[at]);
        window[at] = malloc(bytes);
        memset(window[at], i, bytes);
        sum += window[at][bytes - 1];
    }
    return sum == 42;
}
