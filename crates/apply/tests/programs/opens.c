/* Loads the library given and calls its fill() for its data and its .bss; both must have a memory policy. */
#include <dlfcn.h>

#include "policy.h"

/* Whether a mapping begins at an address, and has a policy. */
static int begins_with_policy(char *memory)
{
    unsigned long begins = 0;
    return has_policy(memory, &begins) && begins == (unsigned long)memory;
}

int main(int argc, char **argv)
{
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    char *(*fill)(int) = library ? (char *(*)(int))dlsym(library, "fill") : NULL;
    if (!fill)
        return 1;
    char *data = fill(0), *zeros = fill(1);
    return begins_with_policy(data) && begins_with_policy(zeros) ? 0 : 2;
}
