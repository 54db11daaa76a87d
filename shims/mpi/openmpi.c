/* Frontend for Open MPI: counts every message at the point where the library's own monitoring counts it.
 *
 * With `pml_monitoring_enable` set, Open MPI loads its monitoring components, and the one for messages
 * reports each message by calling exported functions of libmca_common_monitoring. This library is preloaded and
 * defines the same functions, so it receives these calls, for C, C++ and Fortran alike. It passes them on to the
 * library's own counters if the user may read those: the user enabled the monitoring or requested a dump. Ranks are
 * already translated to MPI_COMM_WORLD. Negative tags mark the library's messages inside collectives:
 * the layer that DeLoc traces (DeLoc II-B1). Nothing here needs an MPI header or library: in a process
 * that is not an MPI rank (mpirun, a shell) none of it is ever called.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "library.h"
#include "rank_file.h"

#define EXPORT __attribute__((visibility("default")))

/* The value with which `numaloc record` enables monitoring. The library treats it like 2, the value that users set. */
#define NUMALOC_ENABLED_BY_US 3

/* Finds the library's own function of that name. It is loaded privately (dlopen), so RTLD_NEXT does not find
 * it; the caller is linked against it, so the caller's dependencies are searched. */
static void *own(_Atomic(void *) *known, const char *name, void *caller) {
    void *found = atomic_load_explicit(known, memory_order_acquire);
    if (found != NULL) return found;
    Dl_info where;
    if (dladdr(caller, &where) == 0 || where.dli_fname == NULL) return NULL;
    void *component = dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (component == NULL) return NULL;
    found = dlsym(component, name);
    dlclose(component); /* drops only our reference; the owner keeps its own */
    if (found != NULL) atomic_store_explicit(known, found, memory_order_release);
    return found;
}

static unsigned from_environment(const char *const *names) {
    for (; *names; names++) {
        const char *text = getenv(*names);
        if (text != NULL && *text >= '0' && *text <= '9') return (unsigned)strtoul(text, NULL, 10);
    }
    return 0;
}

/* `next`: the library's own version of the function that is replaced here. */
#define PASS_ON(type)                                                                              \
    static _Atomic(void *) known;                                                                  \
    __typeof__(type) *next = (__typeof__(type) *)own(&known, __func__, __builtin_return_address(0))

/* Whether the code at `caller` is the monitoring layer's `start`. Its reports lack the tag:
 * they are messages of collectives that the library sends through its own persistent requests
 * (as MPI_Alltoallv does), reported like messages of the program. There are only a handful of call
 * sites, so each is looked up once. */
static int called_from_start(void *caller) {
    static _Atomic(void *) known[16];
    static atomic_char is_start[16];
    for (int i = 0; i < 16; i++) {
        void *place = atomic_load_explicit(&known[i], memory_order_acquire);
        if (place == caller) {
            char answer = atomic_load_explicit(&is_start[i], memory_order_acquire);
            if (answer) return answer == 2;
            break; /* another thread is looking it up now */
        }
        if (place == NULL) {
            if (!atomic_compare_exchange_strong(&known[i], &place, caller) && place != caller) continue;
            Dl_info where;
            int start = dladdr(caller, &where) && where.dli_sname
                        && strcmp(where.dli_sname, "mca_pml_monitoring_start") == 0;
            atomic_store_explicit(&is_start[i], start ? 2 : 1, memory_order_release);
            return start;
        }
    }
    Dl_info where;
    return dladdr(caller, &where) && where.dli_sname
           && strcmp(where.dli_sname, "mca_pml_monitoring_start") == 0;
}

/* Whether the code at `caller` is the monitoring layer for messages. That code uses the result of the function it calls
 * here, so the call is never a tail call and the layer is on the stack in every build. */
static int called_from_message_layer(void *caller) {
    Dl_info where;
    return dladdr(caller, &where) && where.dli_fname != NULL && strstr(where.dli_fname, "mca_pml_monitoring") != NULL;
}

/* Whether the library's own counters are updated, which costs three locked additions and a logarithm per message. They
 * are, unless it is certain that the user does not read them. */
static int own_counters = 1;

/* A parameter of the library's monitoring, wherever it was set; `otherwise` if the library does not have it. */
static int parameter(const char *name, int otherwise) {
    int (*find)(const char *, const char *, const char *, const char *) =
        (__typeof__(find))numaloc_library_function("mca_base_var_find");
    int (*value_of)(int, const void *, void *, const char **) =
        (__typeof__(value_of))numaloc_library_function("mca_base_var_get_value");
    if (find == NULL || value_of == NULL) return otherwise;
    int index = find("ompi", "pml", "monitoring", name);
    const int *value = NULL;
    return index >= 0 && value_of(index, &value, NULL, NULL) == 0 && value != NULL ? *value : otherwise;
}

/* Called once by each monitoring component, in MPI ranks only; opens the rank file. The rank is taken from the
 * launcher, because MPI cannot be queried before MPI_Init has ended.
 *
 * Only the component for messages is accepted. The one for collectives crashes programs that run without it (4.1:
 * neighbourhood collectives on graphs, communicators of spawned processes), and both others use tables created by the
 * first one, so they crash if the user chose another message layer (--mca pml ob1). They are refused in the way the
 * library provides for: they are closed and not used. Collectives are counted as their messages, one-sided calls by
 * profiling.c. */
EXPORT int mca_common_monitoring_init(void) {
    static const char *const rank[] = {"PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", NULL};
    static const char *const size[] = {"OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS",
                                       NULL};
    if (getenv("NUMALOC_MPI_DIR") != NULL && !called_from_message_layer(__builtin_return_address(0)))
        return -1;
    const char *launch = getenv("PMIX_NAMESPACE");
    char job[256] = "";
    if (launch != NULL && getenv("OMPI_COMM_WORLD_RANK") == NULL)
        snprintf(job, sizeof job, NUMALOC_SINGLETON "%s", launch);
    else if (launch != NULL)
        snprintf(job, sizeof job, "%s%s", getenv("OMPI_PARENT_PORT") ? NUMALOC_SPAWNED : "", launch);
    numaloc_rank_open(from_environment(rank), from_environment(size), job, NUMALOC_OPEN_MPI_MONITORING);
    own_counters = !numaloc_rank_is_open() || parameter("enable", 1) != NUMALOC_ENABLED_BY_US
                   || parameter("enable_output", 1) != 0;
    PASS_ON(int(void));
    return next ? next() : 0;
}

/* Called by each component when it is closed; refused components hold no resources. */
EXPORT void mca_common_monitoring_finalize(void) {
    if (getenv("NUMALOC_MPI_DIR") != NULL && !called_from_message_layer(__builtin_return_address(0))) return;
    numaloc_rank_close();
    PASS_ON(void(void));
    if (next) next();
}

/* Called by the layer for messages when a communicator is freed. The library's version uses a table that only the
 * component for collectives creates. */
EXPORT void mca_common_monitoring_coll_cache_name(void *comm) {
    if (getenv("NUMALOC_MPI_DIR") != NULL) return;
    PASS_ON(void(void *));
    if (next) next(comm);
}

/* Whether the library's messages pass through its monitoring layer; valid after MPI_Init. The selected message layer
 * is a table of functions: they do if one of the first functions is the monitoring layer's. */
int numaloc_is_monitored(void) {
    void *const *layer = numaloc_library_variable("mca_pml");
    Dl_info where;
    for (int i = 0; layer != NULL && i < 8; i++)
        if (layer[i] != NULL && dladdr(layer[i], &where) && where.dli_fname != NULL
            && strstr(where.dli_fname, "mca_pml_monitoring") != NULL)
            return 1;
    return 0;
}

EXPORT void mca_common_monitoring_record_pml(int world_rank, size_t bytes, int tag) {
    enum numaloc_kind kind = NUMALOC_POINT_TO_POINT;
    if (tag < 0) kind = NUMALOC_COLLECTIVE;
    else if (tag == 1 && called_from_start(__builtin_return_address(0))) kind = NUMALOC_STARTED;
    numaloc_rank_message(world_rank, bytes, kind);
    if (!own_counters) return;
    PASS_ON(void(int, size_t, int));
    if (next) next(world_rank, bytes, tag);
}
