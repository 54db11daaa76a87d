// Handlers of faults: one that makes memory accessible, one that skips an instruction, one that jumps away, on an alternate stack.
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
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
    signal(SIGSEGV, SIG_DFL);
    fflush(stdout);
    *(volatile int *)8 = 1;
}
