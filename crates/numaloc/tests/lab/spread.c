/* Fills a mapping and a static table, and prints the kernel's release and on how many pages of each are on nodes 0 and 1. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>
enum { PAGE = 4096, MAPPED = 24 << 20, TABLE = 2000 * PAGE };
static char table[TABLE] __attribute__((aligned(PAGE)));

static void count(const char *name, char *at, size_t bytes)
{
    long on[2] = { 0, 0 };
    for (size_t done = 0; done < bytes; done += PAGE) {
        void *page = at + done;
        int node = -1;
        syscall(SYS_move_pages, 0, 1UL, &page, NULL, &node, 0);
        if (node == 0 || node == 1)
            on[node]++;
    }
    printf("%s %ld %ld\n", name, on[0], on[1]);
}

int main(void)
{
    struct utsname kernel;
    char *mapped = mmap(NULL, MAPPED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED || uname(&kernel))
        return 1;
    for (int round = 0; round < 3; round++) {
        memset(mapped, round, MAPPED);
        memset(table, round, TABLE);
    }
    printf("release %s\n", kernel.release);
    count("mapped", mapped, MAPPED);
    count("table", table, TABLE);
    return 0;
}
