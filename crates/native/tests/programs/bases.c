/* The base of gs, by calls and by instructions, of threads and of copies of the process. */
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void show(const char *who)
{
    unsigned long base = 1;
    long result = syscall(SYS_arch_prctl, ARCH_GET_GS, &base);
    printf("%s: %ld %lx\n", who, result, base);
    fflush(stdout);
}

static void *thread(void *unused)
{
    show("thread");
    syscall(SYS_arch_prctl, ARCH_SET_GS, 0x5000);
    show("thread after");
    return 0;
}

int main(void)
{
    pthread_t other;
    show("at first");
    printf("%ld\n", syscall(SYS_arch_prctl, ARCH_SET_GS, 0x123456789000));
    show("set");
    printf("%ld\n", syscall(SYS_arch_prctl, ARCH_SET_GS, 1ul << 63));
    printf("%ld\n", syscall(SYS_arch_prctl, ARCH_GET_GS, 8));
    pthread_create(&other, 0, thread, 0);
    pthread_join(other, 0);
    show("after a thread");
    if (!fork()) {
        show("copy");
        _exit(0);
    }
    wait(0);
    if (getauxval(AT_HWCAP2) & 2) {
        unsigned long base;
        unsigned half;
        __asm__ volatile("rdgsbase %0" : "=r"(base));
        __asm__ volatile("rdgsbase %0" : "=r"(half));
        printf("%lx %x\n", base, half);
        __asm__ volatile("wrgsbase %0" : : "r"(0x700000001000));
        show("by an instruction");
        __asm__ volatile("wrgsbase %0" : : "r"(0x89abcdefu));
        show("by half a register");
    }
    return 0;
}
