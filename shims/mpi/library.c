/* See library.h. RTLD_NEXT finds globally loaded libraries. A library that an interpreter's extension module is linked
 * against is not one (RTLD_LOCAL): it is found by its name among the loaded objects. */
#define _GNU_SOURCE
#include "library.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

struct found {
    char path[4096];
};

static int is_mpi(struct dl_phdr_info *object, size_t size, void *to) {
    (void)size;
    static const char *const names[] = {"libmpi.so", "libmpich.so", "libmpi_cray.so"};
    const char *slash = strrchr(object->dlpi_name, '/'), *name = slash ? slash + 1 : object->dlpi_name;
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(name, names[i], strlen(names[i])) == 0) {
            struct found *found = to;
            snprintf(found->path, sizeof found->path, "%s", object->dlpi_name);
            return 1;
        }
    return 0;
}

static void *in_library(void *scope, const char *name) {
    void *symbol = dlsym(scope, name);
    if (symbol != NULL) return symbol;
    struct found found = {""};
    if (dl_iterate_phdr(is_mpi, &found) == 0) return NULL;
    void *library = dlopen(found.path, RTLD_LAZY | RTLD_NOLOAD);
    if (library == NULL) return NULL;
    symbol = dlsym(library, name);
    dlclose(library); /* drops only our reference; the owner keeps its own */
    return symbol;
}

void *numaloc_library_function(const char *name) { return in_library(RTLD_NEXT, name); }

/* The program may hold the only copy of a variable (copy relocation). */
void *numaloc_library_variable(const char *name) { return in_library(RTLD_DEFAULT, name); }
