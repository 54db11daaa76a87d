// Reserves addresses without memory, uses a little, and gives them back, up to nearly all there are; more, if recorded,
// than the tables distinguish.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static long resident(void) {
    char line[256];
    long most = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status))
        if (!strncmp(line, "VmHWM:", 6))
            most = atol(line + 6);
    fclose(status);
    return most >> 10;
}

int main(void) {
    static const size_t sizes[] = {1, 3, 4, 8, 64};
    long before = resident();
    for (int round = 0; round < 3; ++round)
        for (int n = 0; n < 5; ++n) {
            size_t size = (sizes[n] << 40) - 12288;
            int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
            volatile char *at = mmap(NULL, size, PROT_NONE, flags, -1, 0);
            if (at == MAP_FAILED) {
                perror("mmap");
                return 1;
            }
            long sum = 0;
            for (size_t used = 0; used < size; used += size / 50 & -4096) {
                mprotect((char *)at + used, 4096, PROT_READ | PROT_WRITE);
                at[used + used / 4096 % 4096] = n;
                sum += at[used + used / 4096 % 4096] + at[used];
            }
            // In two parts, the first of which is small and its edges odd.
            munmap((char *)at, 4096 * 1237);
            munmap((char *)at + 4096 * 1237, size - 4096 * 1237);
            printf("%zu TiB %ld\n", sizes[n], sum);
        }
    // The tables of what is used take some; the size of what is reserved does not matter.
    printf("less than 100 MB more: %d\n", resident() - before < 100);
}
