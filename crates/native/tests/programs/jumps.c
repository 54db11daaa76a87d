// longjmp out of many frames, with the registers a compiler keeps across calls.
#include <setjmp.h>
#include <stdio.h>

static jmp_buf back;

__attribute__((noinline)) static void deep(int n, int value) {
    volatile char room[64];
    room[0] = (char)n;
    if (n == 0)
        longjmp(back, value);
    deep(n - 1, value + room[0]);
}

int main(void) {
    volatile long sum = 0;
    for (volatile int n = 1; n < 2000; ++n) {
        int value = setjmp(back);
        if (value == 0)
            deep(n % 100, 1);
        sum += value;
    }
    printf("%ld\n", sum);
    return 7;
}
