// Handlers of faults: one that makes memory accessible, one that skips an instruction, one that jumps away, on an alternate stack.
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

static char *area;
static volatile int repaired, skipped, divided;
static sigjmp_buf out;

static void repair(int number, siginfo_t *info, void *context) {
    ucontext_t *c = context;
    (void)number;
    char *at = info->si_addr;
    if (at >= area && at < area + (64 << 12)) {
        mprotect((char *)((unsigned long)at & ~4095UL), 4096, PROT_READ | PROT_WRITE);
        ++repaired;
        return;
    }
    if (at == (char *)16) {
        // The faulting instruction is mov (%rax), %ebx: two bytes.
        c->uc_mcontext.gregs[REG_RIP] += 2;
        c->uc_mcontext.gregs[REG_RBX] = 1234;
        ++skipped;
        return;
    }
    siglongjmp(out, 1);
}

static void divide(int number, siginfo_t *info, void *context) {
    (void)number, (void)info, (void)context;
    ++divided;
    siglongjmp(out, 2);
}

static volatile int signals, code;
static void *volatile place;

static void where(int number, siginfo_t *info, void *context) {
    (void)context;
    signals = number, code = info->si_code, place = info->si_addr;
    siglongjmp(out, 1);
}

int main(void) {
    stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
    sigaltstack(&stack, NULL);
    struct sigaction action = {.sa_sigaction = repair, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaction(SIGSEGV, &action, NULL);
    action.sa_sigaction = divide;
    sigaction(SIGFPE, &action, NULL);
    area = mmap(NULL, 64 << 12, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    long sum = 0;
    for (int n = 0; n < 64 << 12; n += 512)
        area[n] = (char)n, sum += area[n];
    printf("repaired %d sum %ld\n", repaired, sum);
    int value = 0;
    __asm__ volatile("mov $16, %%eax; mov (%%rax), %%ebx; mov %%ebx, %0" : "=r"(value) : : "rax", "rbx");
    printf("skipped %d value %d\n", skipped, value);
    if (sigsetjmp(out, 1) == 0)
        *(volatile int *)99 = 1;
    else
        printf("jumped\n");
    volatile int zero = 0;
    if (sigsetjmp(out, 1) == 0)
        printf("%d\n", 1 / zero);
    printf("divided %d\n", divided);
    // A jump to where nothing is.
    if (sigsetjmp(out, 1) == 0)
        ((void (*)(void))0x1230)();
    printf("back\n");
    // To an address that no memory has, and to an instruction that begins on a page and ends beyond the last one.
    action.sa_sigaction = where;
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGILL, &action, NULL);
    if (sigsetjmp(out, 1) == 0)
        ((void (*)(void))0x8000000000000000)();
    printf("signal %d code %d at %p\n", signals, code, place);
    char *pages = mmap(NULL, 2 << 12, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(pages + 4090, "\x90\x90\x90\xb8\0\0", 6);
    for (int mapped = 1; mapped >= 0; mapped--) {
        if (mapped) mprotect(pages + 4096, 4096, PROT_READ);
        else munmap(pages + 4096, 4096);
        if (sigsetjmp(out, 1) == 0)
            ((void (*)(void))(pages + 4090))();
        printf("signal %d code %d at %ld\n", signals, code, (long)((char *)place - pages));
    }
    signal(SIGSEGV, SIG_DFL);
    fflush(stdout);
    *(volatile int *)8 = 1;
}
