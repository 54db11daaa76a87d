/* The memory policy of a program's own memory. */
#include <stdio.h>
#include <string.h>

/* Whether the mapping that contains an address has a policy; where that mapping begins. */
static int has_policy(const char *memory, unsigned long *begins)
{
    char line[512];
    int found = 0;
    FILE *maps = fopen("/proc/self/numa_maps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long start;
        if (sscanf(line, "%lx", &start) == 1 && start <= (unsigned long)memory) {
            found = strstr(line, "prefer") != NULL;
            *begins = start;
        }
    }
    if (maps)
        fclose(maps);
    return found;
}
