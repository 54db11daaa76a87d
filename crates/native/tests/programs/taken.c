/* Maps and moves memory to an address where the recorder has its tables, and goes on. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

int main(int count, char **arguments)
{
    void *wanted = (void *)strtoul(arguments[1], 0, 16);
    const int protection = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    int *memory = mmap(0, 4096, protection, flags, -1, 0);
    *memory = 7;
    for (int i = 0; i < 2; i++)
        printf("%d\n", mmap(wanted, 4096, protection, flags | MAP_FIXED, -1, 0) == MAP_FAILED ? errno : 0);
    printf("%d\n", mremap(memory, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, wanted) == MAP_FAILED ? errno : 0);
    printf("%d\n", *memory);
    return 0;
}
