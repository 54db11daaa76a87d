/* Prints how many mappings the process has for each of 100 threads. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void *wait_for_end(void *unused) { return pause(), unused; }

static int mappings(void)
{
    char line[4096];
    int count = 0;
    FILE *file = fopen("/proc/self/smaps", "r");
    while (fgets(line, sizeof line, file)) count += !strncmp(line, "VmFlags", 7);
    fclose(file);
    return count;
}

int main(void)
{
    int before = mappings();
    pthread_t thread;
    for (int i = 0; i < 100; i++) pthread_create(&thread, 0, wait_for_end, 0);
    sleep(1);
    printf("%d\n", (mappings() - before + 50) / 100);
    return 0;
}
