/* Makes the stack executable where it is and further down (PROT_GROWSDOWN), as the dynamic linker does for a library
   that needs this, and calls nested functions there, also where the stack has not been before. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

__attribute__((noinline)) static long apply(long (*f)(long), long n)
{
    return f(n);
}

__attribute__((noinline)) static long down(int depth)
{
    char room[4000];
    memset(room, depth, sizeof room);
    long plus(long x) { return x + room[x % sizeof room] + depth; }
    long here = apply(plus, depth);
    return depth ? here + down(depth - 1) : here;
}

int main(void)
{
    volatile char here = 0;
    char *page = (char *)((uintptr_t)&here & -4096);
    printf("%d\n", mprotect(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC | PROT_GROWSDOWN));
    fflush(stdout);
    printf("%ld %ld\n", down(3), down(300));
    return 0;
}
