/* Loads the library given and calls its fill() for its data and its .bss; both must have a memory policy. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static int has_policy(char *memory)
{
    char line[512];
    int found = 0;
    FILE *maps = fopen("/proc/self/numa_maps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long start;
        if (sscanf(line, "%lx", &start) == 1 && start == (unsigned long)memory)
            found = strstr(line, "prefer") != NULL;
    }
    return found;
}

int main(int argc, char **argv)
{
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    char *(*fill)(int) = library ? (char *(*)(int))dlsym(library, "fill") : NULL;
    if (!fill)
        return 1;
    char *data = fill(0), *zeros = fill(1);
    return has_policy(data) && has_policy(zeros) ? 0 : 2;
}
