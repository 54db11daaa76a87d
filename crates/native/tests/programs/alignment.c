// The alignment check, set while the program goes on, and the direction flag across a system call.
#include <stdio.h>
#include <unistd.h>

int main(void) {
    unsigned long before, after;
    for (int n = 0; n < 3; ++n)
        __asm__ volatile("pushfq; popq %0; movq %0, %%rcx; xorq $0x40000, %%rcx; pushq %%rcx; popfq; jmp 1f; .skip 70, 0x90; 1: "
                         "pushfq; popq %1; pushq %0; popfq"
                         : "=&r"(before), "=&r"(after)
                         :
                         : "rcx", "cc", "memory");
    printf("%lx\n", before ^ after);
    long number = 39, result;
    __asm__ volatile("std; syscall; pushfq; popq %1; cld"
                     : "=a"(result), "=&r"(after)
                     : "0"(number)
                     : "rcx", "r11", "memory", "cc");
    printf("%d %lx\n", result == getpid(), after & 0x400);
    return 0;
}
