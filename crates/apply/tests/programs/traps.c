// Blocks or ignores SIGTRAP, makes the calls that are intercepted, and ends with 0 if both are as it left them.
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

static void handler(int number) {
    (void)number;
}

static void calls(void) {
    cpu_set_t set;
    for (int i = 0; i < 8; i++) {
        size_t bytes = 1 << 20;
        char *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(memory, 1, bytes);
        memory = mremap(memory, bytes, 2 * bytes, MREMAP_MAYMOVE);
        memset(memory, 1, 2 * bytes);
        memset(sbrk(1 << 16), 1, 1 << 16);
    }
    CPU_ZERO(&set);
    CPU_SET(sched_getcpu(), &set);
    sched_setaffinity(0, sizeof set, &set);
    prctl(PR_SET_NAME, "traps", 0, 0, 0);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

static int is_kept(int blocked, void (*expected)(int)) {
    sigset_t mask;
    struct sigaction now;
    sigprocmask(SIG_BLOCK, 0, &mask);
    sigaction(SIGTRAP, 0, &now);
    // Others than SIGTRAP are as they were too.
    return sigismember(&mask, SIGTRAP) == blocked && sigismember(&mask, SIGUSR2) == blocked && now.sa_handler == expected;
}

int main(int count, char **words) {
    char mode = count > 1 ? words[1][0] : 'b';
    sigset_t all;
    sigfillset(&all);
    if (mode == 'b') {
        struct sigaction action = {.sa_handler = handler};
        sigaction(SIGTRAP, &action, 0);
        sigprocmask(SIG_BLOCK, &all, 0);
        calls();
        return is_kept(1, handler) ? 0 : 3;
    }
    if (mode == 'i') {
        signal(SIGTRAP, SIG_IGN);
        calls();
        return is_kept(0, SIG_IGN) ? 0 : 4;
    }
    if (mode == 'x') {
        signal(SIGTRAP, SIG_IGN);
        sigprocmask(SIG_BLOCK, &all, 0);
        execl(words[0], words[0], "after", NULL);
        return 5;
    }
    // As inherited.
    if (!is_kept(1, SIG_IGN))
        return 6;
    calls();
    return is_kept(1, SIG_IGN) ? 0 : 7;
}
