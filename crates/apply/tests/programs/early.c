/* With -DLIBRARY a library whose constructor allocates memory, as those of OpenMP and C++ do, and that has statics over a page boundary. Else
 * a program that uses both: status 0 if all of this memory has a policy. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef LIBRARY

static char zeros[64 * 4096 + 8];

char *statics(void)
{
    return zeros;
}

__attribute__((constructor)) static void allocates(void)
{
    free(memset(malloc(20000), 1, 20000));
}

#else

char *statics(void);

/* Whether the mapping that contains an address has a policy. */
static int has_policy(char *memory)
{
    char line[512];
    int found = 0;
    FILE *maps = fopen("/proc/self/numa_maps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long start;
        if (sscanf(line, "%lx", &start) == 1 && start <= (unsigned long)memory)
            found = strstr(line, "prefer") != NULL;
    }
    return found;
}

int main(void)
{
    char *block = memset(malloc(40000), 2, 40000);
    char *zeros = memset(statics(), 3, 64 * 4096);
    for (long at = 0; at < 64; at++)
        if (!has_policy(zeros + at * 4096))
            return 2;
    return has_policy(block) && has_policy(block + 39999) ? 0 : 1;
}

#endif
