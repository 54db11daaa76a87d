/* With -DLIBRARY a library whose constructor allocates memory, as those of OpenMP and C++ do, and that has statics over a page boundary. Else
 * a program that uses both: status 0 if all of this memory has a policy. */
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

#include "policy.h"

char *statics(void);

int main(void)
{
    char *block = memset(malloc(40000), 2, 40000);
    unsigned long begins;
    char *zeros = memset(statics(), 3, 64 * 4096);
    for (long at = 0; at < 64; at++)
        if (!has_policy(zeros + at * 4096, &begins))
            return 2;
    return has_policy(block, &begins) && has_policy(block + 39999, &begins) ? 0 : 1;
}

#endif
