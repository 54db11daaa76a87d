/* Loads the library given and calls its fill(). */
#include <dlfcn.h>
#include <stddef.h>

int main(int argc, char **argv)
{
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    void (*fill)(void) = library ? (void (*)(void))dlsym(library, "fill") : NULL;
    if (!fill)
        return 1;
    fill();
    return 0;
}
