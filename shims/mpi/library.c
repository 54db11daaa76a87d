/* See library.h. RTLD_NEXT finds globally loaded libraries. A library that an interpreter's extension module is linked
 * against is not one (RTLD_LOCAL): it is found by its name among the loaded objects. */
#define _GNU_SOURCE
#include "library.h"

#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
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

struct range {
    uintptr_t within, from, to;
};

static int find_range(struct dl_phdr_info *object, size_t size, void *to) {
    (void)size;
    struct range *range = to;
    uintptr_t from = UINTPTR_MAX, end = 0;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        if (object->dlpi_phdr[i].p_type != PT_LOAD) continue;
        uintptr_t start = object->dlpi_addr + object->dlpi_phdr[i].p_vaddr;
        if (start < from) from = start;
        if (start + object->dlpi_phdr[i].p_memsz > end) end = start + object->dlpi_phdr[i].p_memsz;
    }
    if (range->within < from || range->within >= end) return 0;
    range->from = from;
    range->to = end;
    return 1;
}

int numaloc_same_object(const void *function, const void *address) {
    static _Atomic uintptr_t from, to;
    if (to == 0) {
        struct range range = {(uintptr_t)function, 0, 1};
        dl_iterate_phdr(find_range, &range);
        from = range.from;
        to = range.to;
    }
    return (uintptr_t)address >= from && (uintptr_t)address < to;
}
