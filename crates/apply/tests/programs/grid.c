/* A library for dlopen with a section of its own of 64 pages and as much .bss. */
#include <string.h>

static char grid[64 * 4096] __attribute__((section(".grid"), aligned(4096))) = {1};

static char zeros[64 * 4096] __attribute__((aligned(4096)));

char *fill(int which)
{
    return memset(which ? zeros : grid, 3, sizeof grid);
}
