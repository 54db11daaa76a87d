// Code that changes: written before each call into a page that may be written and executed, replaced by mprotect, unmapped, and
// an instruction that changes the next one.
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

typedef int (*function)(void);

static void put(unsigned char *at, int value) {
    unsigned char code[] = {0xb8, 0, 0, 0, 0, 0xc3}; // mov $value, %eax; ret
    memcpy(code + 1, &value, 4);
    memcpy(at, code, sizeof code);
}

int main(void) {
    int both = PROT_READ | PROT_WRITE | PROT_EXEC, anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
    unsigned char *page = mmap(NULL, 8192, both, anonymous, -1, 0);
    long sum = 0;
    for (int n = 0; n < 300; ++n) {
        put(page + n % 7 * 16, n);
        sum += ((function)(page + n % 7 * 16))();
    }
    printf("%ld\n", sum);
    for (int n = 0; n < 100; ++n) {
        mprotect(page, 4096, PROT_READ | PROT_WRITE);
        put(page, n * 3);
        mprotect(page, 4096, PROT_READ | PROT_EXEC);
        sum += ((function)page)();
    }
    printf("%ld\n", sum);
    for (int n = 0; n < 50; ++n) {
        unsigned char *again = mmap(page, 4096, both, anonymous | MAP_FIXED, -1, 0);
        put(again, n);
        sum += ((function)again)();
    }
    printf("%ld\n", sum);
    // movb $9, 1(%rip) changes the immediate of the next instruction, mov $1, %eax.
    static const unsigned char self[] = {0xc6, 0x05, 0x01, 0, 0, 0, 9, 0xb8, 1, 0, 0, 0, 0xc3};
    memcpy(page + 4096, self, sizeof self);
    printf("%d\n", ((function)(page + 4096))());
    // The kernel writes code, too.
    FILE *file = tmpfile();
    put(page, 77);
    fwrite(page, 1, 6, file);
    rewind(file);
    put(page, 5);
    sum = ((function)page)();
    setvbuf(file, NULL, _IONBF, 0);
    if (fread(page, 1, 6, file) != 6)
        return 1;
    printf("%ld %d\n", sum, ((function)page)());
}
