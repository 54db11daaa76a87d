/* One object of each kind, every page of each written: what the launcher's tests place and read back.
 * A section of its own, so that its size is known; 64 pages each. Arguments: kernel numbers of the PUs
 * on which the main thread and the second thread must run from their first instruction on.
 * Exit status: 0 if they do, else the number of the failed check. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES (64 * 4096L)

static char grid[BYTES] __attribute__((section(".grid"), aligned(4096))) = {1};
static char **arguments;

/* The affinity in the kernel, not the one reported to this program: "3" for PU 3 alone. */
static int is_on(const char *pu)
{
    char line[256], wanted[64];
    int found = 0;
    FILE *status = fopen("/proc/thread-self/status", "r");
    snprintf(wanted, sizeof wanted, "Cpus_allowed_list:\t%s\n", pu);
    while (status && fgets(line, sizeof line, status))
        found |= strcmp(line, wanted) == 0;
    if (status)
        fclose(status);
    return found;
}

static void *second(void *stack_to_fill)
{
    char here[16 * 4096];
    if (!is_on(arguments[2]))
        return "second thread is elsewhere";
    memset(here, 1, sizeof here);
    memcpy(stack_to_fill, here, 16);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    void *failure = NULL;
    cpu_set_t told;
    char copy[16];
    if (argc < 3)
        return 9;
    arguments = argv;
    if (!is_on(argv[1]))
        return 1;
    if (sched_getaffinity(0, sizeof told, &told) || CPU_COUNT(&told) != sysconf(_SC_NPROCESSORS_ONLN))
        return 2; /* the program must see the machine, not its own PU */
    memset(grid, 1, BYTES);
    char *mapped = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *shared = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED || shared == MAP_FAILED)
        return 3;
    memset(mapped, 2, BYTES);
    for (int i = 0; i < 64; i++) {
        char *block = malloc(4000); /* stays below the mmap threshold: from the heap */
        memset(block, i, 4000);
    }
    if (pthread_create(&thread, NULL, second, copy) || pthread_join(thread, &failure))
        return 4;
    if (failure)
        return 5;
    /* A second process that shares memory with the first. */
    pid_t child = fork();
    if (child == 0) {
        memset(shared, 3, BYTES);
        _exit(0);
    }
    int status = 1;
    waitpid(child, &status, 0);
    int sum = 0;
    for (long at = 0; at < BYTES; at += 4096)
        sum += shared[at];
    return status == 0 && sum == 64 * 3 ? 0 : 6;
}
