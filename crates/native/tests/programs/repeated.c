/* Signals that arrive in the middle of repeated string instructions of megabytes, upward and downward, and faults there. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

enum { SIZE = 8 << 20 };
static volatile long ticks, faults;
static unsigned char *from, *to;

static void on_alarm(int number) { ticks++; }

static void on_fault(int number, siginfo_t *info, void *context)
{
    faults++;
    mprotect((void *)((unsigned long)info->si_addr & ~4095ul), 4096, PROT_READ | PROT_WRITE);
}

/* Executes an instruction with these registers; how far it came. */
#define STRING(name, code)                                                                                      \
    static long name(unsigned char *target, const unsigned char *source, long count, unsigned long value)       \
    {                                                                                                           \
        long left = count;                                                                                      \
        __asm__ volatile(code : "+c"(left), "+D"(target), "+S"(source), "+a"(value) : : "memory", "cc");        \
        return count - left;                                                                                    \
    }
STRING(store_bytes, "rep stosb")
STRING(store_shorts, "rep stosw")
STRING(store_ints, "rep stosl")
STRING(store_words, "rep stosq")
STRING(move_bytes, "rep movsb")
STRING(move_shorts, "rep movsw")
STRING(move_ints, "rep movsl")
STRING(move_words, "rep movsq")
STRING(move_down, "std\n rep movsb\n cld")
STRING(load_bytes, "rep lodsb")
STRING(compare_bytes, "repe cmpsb")
STRING(compare_words, "repe cmpsq")
STRING(scan_bytes, "repne scasb")
STRING(scan_ints, "repe scasl")

static void repeat(const char *name, long (*instruction)(unsigned char *, const unsigned char *, long, unsigned long),
                   long size, unsigned long value, long last)
{
    long before = ticks, done;
    memset(to, 0, SIZE);
    do done = instruction(to + last, from + last, SIZE / size, value);
    while (ticks < before + 3);
    unsigned long sum = 0;
    for (long i = 0; i < SIZE; i++) sum = sum * 31 + to[i];
    printf("%s: %ld, %lx\n", name, done, sum);
}

int main(void)
{
    setvbuf(stdout, 0, _IOLBF, 0);
    from = mmap(0, SIZE + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    to = mmap(0, SIZE + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (long i = 0; i < SIZE; i++) from[i] = i % 251 + 1;
    struct sigaction alarm = {.sa_handler = on_alarm}, fault = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGALRM, &alarm, 0), sigaction(SIGSEGV, &fault, 0);
    struct itimerval timer = {{0, 700}, {0, 700}}, none = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &timer, 0);
    repeat("store bytes", store_bytes, 1, 0x11, 0), repeat("store shorts", store_shorts, 2, 0x1234, 0);
    repeat("store ints", store_ints, 4, 0x12345678, 0), repeat("store words", store_words, 8, 0x123456789abcdef0, 0);
    repeat("move bytes", move_bytes, 1, 0, 0), repeat("move shorts", move_shorts, 2, 0, 0);
    repeat("move ints", move_ints, 4, 0, 0), repeat("move words", move_words, 8, 0, 0);
    repeat("move down", move_down, 1, 0, SIZE - 1), repeat("load bytes", load_bytes, 1, 0, 0);
    repeat("scan bytes", scan_bytes, 1, 7, 0), repeat("scan ints", scan_ints, 4, 0, 0);
    memcpy(to, from, SIZE), from[SIZE - 9] ^= 1;
    for (int words = 0; words < 2; words++) {
        long before = ticks, same;
        do same = (words ? compare_words : compare_bytes)(to, from, words ? SIZE / 8 : SIZE, 0);
        while (ticks < before + 3);
        printf("equal: %ld\n", same);
    }
    for (long before = ticks; ticks < before + 3;) {
        for (long at = 0; at < SIZE; at += 64 << 10) mprotect(to + at, 4096, PROT_NONE);
        faults = 0;
        if (move_bytes(to, from, SIZE, 0) != SIZE || faults != SIZE >> 16) printf("faults %ld\n", faults);
        if (memcmp(to, from, SIZE)) printf("other bytes\n");
    }
    setitimer(ITIMER_REAL, &none, 0);
    return 0;
}
