/* Finds functions of the MPI library that preloaded ones replace. */
#ifndef NUMALOC_LIBRARY_H
#define NUMALOC_LIBRARY_H

/* The next definition of `name` after ours: of a profiling tool, or of the MPI library, even if an interpreter has
 * loaded that privately (Python's mpi4py). NULL if there is none. */
void *numaloc_library_function(const char *name);
/* The library's variable of that name. */
void *numaloc_library_variable(const char *name);

/* Whether `address` is in the loaded object that holds `function`. Remembers the object of the first call. */
int numaloc_same_object(const void *function, const void *address);

/* Names, in rank files, of worlds that no launcher started. */
#define NUMALOC_SPAWNED "spawned "
#define NUMALOC_SINGLETON "singleton "

#endif
