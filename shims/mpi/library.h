/* Functions of the MPI library behind the preloaded ones. */
#ifndef NUMALOC_LIBRARY_H
#define NUMALOC_LIBRARY_H

/* The next definition of `name` after ours: of a profiling tool, or of the MPI library, also where an interpreter has loaded
 * that for itself (Python's mpi4py). NULL if there is none. */
void *numaloc_library_function(const char *name);
/* The library's variable of that name. */
void *numaloc_library_variable(const char *name);

/* How worlds that a launcher did not start itself are named in rank files. */
#define NUMALOC_SPAWNED "spawned "
#define NUMALOC_SINGLETON "singleton "

#endif
