// Keeps values in all halves of the vector registers while it writes to memory for the first time and exchanges lines
// with another thread: what records these accesses must not change the registers.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REGISTERS = 16, WORDS = 4, BYTES = 32 << 20, LINE = 64 };

static uint64_t expected[REGISTERS][WORDS] __attribute__((aligned(32)));
static uint64_t found[REGISTERS][WORDS] __attribute__((aligned(32)));

#define EACH(F) F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11) F(12) F(13) F(14) F(15)
#define LOAD(N) "vmovdqa 32*" #N "(%[expected]), %%ymm" #N "\n\t"
#define STORE(N) "vmovdqa %%ymm" #N ", 32*" #N "(%[found])\n\t"

// One load and one store in each line of a buffer.
static int differs(char *begin, char *end)
{
    __asm__ volatile(EACH(LOAD)
                     "1: movq (%[at]), %%rax\n\t"
                     "leaq 1(%%rax), %%rax\n\t"
                     "movq %%rax, 8(%[at])\n\t"
                     "leaq 64(%[at]), %[at]\n\t"
                     "cmpq %[end], %[at]\n\t"
                     "jb 1b\n\t" EACH(STORE)
                     : [at] "+r"(begin)
                     : [end] "r"(end), [expected] "r"(expected), [found] "r"(found)
                     : "rax", "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
                       "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
    return memcmp(expected, found, sizeof found) != 0;
}

static char *buffer;

static void *other(void *unused)
{
    for (int turn = 0; turn < 20; turn++)
        for (char *at = buffer; at < buffer + BYTES / 64; at += LINE)
            *(volatile uint64_t *)(at + 16) = turn;
    return unused;
}

int main(void)
{
    if (!__builtin_cpu_supports("avx")) {
        puts("no AVX");
        return 0;
    }
    for (int number = 0; number < REGISTERS; number++)
        for (int word = 0; word < WORDS; word++)
            expected[number][word] = 0x1111111111111111u * (number + 1) ^ word;
    buffer = malloc(BYTES);
    pthread_t thread;
    if (!buffer || pthread_create(&thread, NULL, other, NULL))
        return 1;
    int wrong = 0;
    for (int turn = 0; turn < 20; turn++)
        wrong += differs(buffer, buffer + BYTES / 64);
    pthread_join(thread, NULL);
    for (int turn = 0; turn < 2; turn++)
        wrong += differs(buffer, buffer + BYTES);
    printf("%d of 22 turns changed a register\n", wrong);
    return wrong != 0;
}
