/* A library with a section of its own, 64 pages, for dlopen. */
#include <string.h>

static char grid[64 * 4096] __attribute__((section(".grid"), aligned(4096))) = {1};

void fill(void)
{
    memset(grid, 3, sizeof grid);
}
