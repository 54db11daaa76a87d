/* Eight threads map and unmap memory all the time; meanwhile the first thread maps the block that a plan places, which
 * is the last mapping that the launcher waits for. */
#include <pthread.h>
#include <sys/mman.h>

enum { THREADS = 8, ROUNDS = 300, BYTES = 64 * 4096 };

static void *map_and_unmap(void *unused)
{
    for (int round = 0; round < ROUNDS; round++) {
        void *memory = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) return &map_and_unmap;
        *(volatile char *)memory = 1;
        munmap(memory, 8192);
    }
    return unused;
}

int main(void)
{
    pthread_t threads[THREADS];
    for (int t = 0; t < THREADS; t++) pthread_create(threads + t, 0, map_and_unmap, 0);
    char *block = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) return 1;
    for (int byte = 0; byte < BYTES; byte += 4096) block[byte] = 1;
    int failed = 0;
    for (int t = 0; t < THREADS; t++) {
        void *result;
        pthread_join(threads[t], &result);
        failed |= result != 0;
    }
    return failed;
}
