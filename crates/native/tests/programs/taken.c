/* Puts memory at an address where the recorder has its tables: maps, moves or attaches it. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>

int main(int count, char **arguments)
{
    void *wanted = (void *)strtoul(arguments[1], 0, 16), *found = MAP_FAILED;
    const int protection = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    int *memory = mmap(0, 4096, protection, flags, -1, 0);
    *memory = 7;
    if (strcmp(arguments[2], "map") == 0) {
        found = mmap(wanted, 4096, protection, flags | MAP_FIXED, -1, 0);
    } else if (strcmp(arguments[2], "move") == 0) {
        found = mremap(memory, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, wanted);
    } else {
        int id = shmget(IPC_PRIVATE, 3 * 4096, 0600);
        found = shmat(id, wanted, 0);
        shmctl(id, IPC_RMID, 0);
    }
    if (found == MAP_FAILED) {
        printf("%d\n", errno);
        return 1;
    }
    ++*(int *)wanted;
    printf("%p %d\n", found, *(int *)wanted);
    return 0;
}
