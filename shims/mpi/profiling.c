/* The MPI profiling interface: wraps the program's calls that send messages.
 *
 * Compiled once for MPICH and the libraries with its binary interface (Intel MPI, MVAPICH, Cray MPICH), where it
 * counts everything, and once for Open MPI (NUMALOC_FOR_OPEN_MPI), where it counts what the library's monitoring layer
 * does not (persistent sends, one-sided calls), and everything if that layer is not in use (openmpi.c).
 *
 * Each wrapper calls the next function of its own name, so that a profiling tool of the user is still called. Both names
 * are wrapped, and a call inside a wrapped call is not counted again: Fortran bindings call the C functions by their PMPI_
 * names, all of Open MPI's and some of MPICH's mpi_f08. The PMPI_ calls that MPICH itself makes (in MPI-IO) are not the
 * program's.
 *
 * The profiling interface does not show the messages of a collective: they are modelled (collective_model.c) and
 * marked so. Collectives on inter-communicators are passed on uncounted.
 *
 * Preloaded into every process of the run: functions of the library are looked up when the first wrapper runs, so the
 * library has no effect in a process without MPI (mpiexec, a shell). Types are those of the binary interface; `make
 * test` also compiles this file against each real mpi.h, which detects wrong prototypes.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "collective_model.h"
#include "library.h"
#include "rank_file.h"
#include "timing.h"
#include "types.h"

#define EXPORT __attribute__((visibility("default")))
#define UNPACK(...) __VA_ARGS__

/* Functions of the library that are used here. */
#define QUERIES(Q)                                                                                 \
    Q(Initialized, (int *))                                                                        \
    Q(Query_thread, (int *))                                                                       \
    Q(Comm_rank, (MPI_Comm, int *))                                                                \
    Q(Comm_size, (MPI_Comm, int *))                                                                \
    Q(Comm_group, (MPI_Comm, MPI_Group *))                                                         \
    Q(Comm_remote_group, (MPI_Comm, MPI_Group *))                                                  \
    Q(Comm_test_inter, (MPI_Comm, int *))                                                          \
    Q(Comm_get_parent, (MPI_Comm *))                                                               \
    Q(Group_translate_ranks, (MPI_Group, int, const int *, MPI_Group, int *))                      \
    Q(Group_size, (MPI_Group, int *))                                                              \
    Q(Group_free, (MPI_Group *))                                                                   \
    Q(Win_get_group, (MPI_Win, MPI_Group *))                                                       \
    Q(Type_size_x, (MPI_Datatype, MPI_Count *))                                                    \
    Q(Topo_test, (MPI_Comm, int *))                                                                \
    Q(Cartdim_get, (MPI_Comm, int *))                                                              \
    Q(Cart_shift, (MPI_Comm, int, int, int *, int *))                                              \
    Q(Graph_neighbors_count, (MPI_Comm, int, int *))                                               \
    Q(Graph_neighbors, (MPI_Comm, int, int, int *))                                                \
    Q(Dist_graph_neighbors_count, (MPI_Comm, int *, int *, int *))                                 \
    Q(Dist_graph_neighbors, (MPI_Comm, int, int *, int *, int, int *, int *))
#define MEMBER(name, parameters) int(*name) parameters;
static struct { QUERIES(MEMBER) } mpi;
static MPI_Comm world_comm, no_comm;
/* Of a process that uses MPI through sessions, without MPI_Init: the ranks of the launch, from the first session. */
static MPI_Group session_world;
static MPI_Session first_session;
static int has_session;

/* Looks up these functions; 0 if the library lacks one. */
static int find_library(void) {
#define FIND(name, parameters)                                                                     \
    if ((mpi.name = (int(*) parameters)numaloc_library_function("PMPI_" #name)) == NULL) return 0;
    QUERIES(FIND)
#ifdef NUMALOC_FOR_OPEN_MPI
    world_comm = (MPI_Comm)numaloc_library_variable("ompi_mpi_comm_world");
    no_comm = (MPI_Comm)numaloc_library_variable("ompi_mpi_comm_null");
    return world_comm != NULL && no_comm != NULL;
#else
    world_comm = MPI_COMM_WORLD;
    no_comm = MPI_COMM_NULL;
    return 1;
#endif
}

/* ---- ranks of communicators and windows in MPI_COMM_WORLD ---- */

#define CACHED 64u
struct group {
    handle handle; /* 0: free */
    int inter, me, size, *world;
};
static struct group cache[CACHED]; /* direct-mapped: a collision costs a translation, nothing else */
static pthread_mutex_t cache_lock = PTHREAD_MUTEX_INITIALIZER;

/* The handles of communicators and windows never coincide. */
static uint32_t hash(handle handle) { return (uint32_t)(handle ^ handle >> 6) * 2654435761u; }
static struct group *slot(handle handle) { return &cache[hash(handle) >> 26]; }

static void drop(struct group *g) {
    free(g->world);
    *g = (struct group){0};
}

static void forget(handle handle) {
    pthread_mutex_lock(&cache_lock);
    if (slot(handle)->handle == handle) drop(slot(handle));
    pthread_mutex_unlock(&cache_lock);
}

/* The ranks of a group in MPI_COMM_WORLD, and their number; frees the group. NULL if they cannot be determined. */
static int *in_world(MPI_Group group, int *size) {
    MPI_Group world;
    mpi.Group_size(group, size);
    int *from = malloc(sizeof(int) * (size_t)(*size + 1)), *to = malloc(sizeof(int) * (size_t)(*size + 1));
    int failed = from == NULL || to == NULL;
    if (!failed && has_session) world = session_world;
    else failed = failed || mpi.Comm_group(world_comm, &world) != 0;
    if (!failed) {
        for (int i = 0; i < *size; i++) from[i] = i;
        failed = mpi.Group_translate_ranks(group, *size, from, world, to) != 0;
        if (!has_session) mpi.Group_free(&world);
    }
    mpi.Group_free(&group);
    free(from);
    if (!failed) return to;
    free(to);
    return NULL;
}

/* The group of a handle; call with the lock held. NULL if it cannot be determined. */
static struct group *group_of(handle handle, int is_window) {
    struct group *g = slot(handle);
    if (g->handle == handle) return g;
    int inter = 0, me = -1, size = 0, *to = NULL;
    MPI_Group group;
    if (is_window) {
        if (mpi.Win_get_group((MPI_Win)handle, &group) != 0) return NULL;
    } else {
        if (mpi.Comm_test_inter((MPI_Comm)handle, &inter) != 0) return NULL;
        mpi.Comm_rank((MPI_Comm)handle, &me);
        if ((inter ? mpi.Comm_remote_group : mpi.Comm_group)((MPI_Comm)handle, &group) != 0) return NULL;
    }
    to = in_world(group, &size);
    if (to == NULL) return NULL;
    drop(g);
    *g = (struct group){handle, inter, me, size, to};
    return g;
}

/* ---- counting ---- */

/* What is counted: everything, or only what the other observer (openmpi.c) does not count. */
enum { UNKNOWN, NOTHING, REST, EVERYTHING };
static int state = UNKNOWN;
static int my_rank; /* in MPI_COMM_WORLD */
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;

#ifndef NUMALOC_FOR_OPEN_MPI
static int numaloc_is_monitored(void) { return 0; }
#else
int numaloc_is_monitored(void); /* openmpi.c */
#endif

/* The thread level at which several threads may call the library at the same time; the same number in all libraries. */
#define THREAD_MULTIPLE 3

/* The name of this rank's world. */
static void name_world(char *name, size_t size, int ranks) {
    MPI_Comm parent = no_comm;
    if (!has_session) mpi.Comm_get_parent(&parent);
    const char *launch = getenv("PMIX_NAMESPACE");
    const char *spawned = parent == no_comm ? "" : NUMALOC_SPAWNED;
    if (launch != NULL) snprintf(name, size, "%s%s", spawned, launch);
    else if (ranks == 1 && parent == no_comm && getenv("PMI_RANK") == NULL && getenv("SLURM_PROCID") == NULL)
        snprintf(name, size, NUMALOC_SINGLETON "%ld", (long)getpid());
    else snprintf(name, size, "%s", spawned);
}

static void begin(void) {
    pthread_mutex_lock(&open_lock);
    if (state == UNKNOWN) {
        int now = NOTHING, initialized = 0, rank = 0, size = 0;
        /* Without MPI_Init (sessions) there is no MPI_COMM_WORLD to ask. */
        int found = find_library() && mpi.Initialized(&initialized) == 0;
        if (found && initialized) {
            found = mpi.Comm_rank(world_comm, &rank) == 0 && mpi.Comm_size(world_comm, &size) == 0;
        } else if (found && has_session) {
            int (*rank_of)(MPI_Group, int *) = (int (*)(MPI_Group, int *))numaloc_library_function("PMPI_Group_rank");
            found = rank_of != NULL && rank_of(session_world, &rank) == 0 && mpi.Group_size(session_world, &size) == 0;
        } else {
            found = 0;
        }
        if (found) {
            now = numaloc_is_monitored() ? REST : EVERYTHING;
            int level = THREAD_MULTIPLE;
            if (initialized && mpi.Query_thread(&level) == 0 && level < THREAD_MULTIPLE) {
                numaloc_rank_one_thread_at_a_time();
                numaloc_time_one_thread_at_a_time();
            }
            if (now == EVERYTHING) {
                char job[256];
                name_world(job, sizeof job, size);
                numaloc_rank_open((uint32_t)rank, (uint32_t)size, job, NUMALOC_PMPI);
            }
            my_rank = rank;
            numaloc_time_start();
        }
        __atomic_store_n(&state, now, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&open_lock);
}

static int counts(int least) {
    if (__builtin_expect(__atomic_load_n(&state, __ATOMIC_ACQUIRE) == UNKNOWN, 0)) begin();
    return __atomic_load_n(&state, __ATOMIC_RELAXED) >= least && numaloc_rank_is_open();
}

/* The same after `counts(REST)`. */
static inline int counted(int least) { return least == REST || __atomic_load_n(&state, __ATOMIC_RELAXED) >= least; }

static uint64_t size_of(MPI_Count n, MPI_Datatype type) {
    MPI_Count size = 0;
    if (n <= 0 || mpi.Type_size_x(type, &size) != 0 || size < 0) return 0;
    return (uint64_t)n * (uint64_t)size;
}

static void count(handle handle, int is_window, int rank, uint64_t bytes, enum numaloc_kind kind) {
    if (rank < 0) return; /* MPI_PROC_NULL */
    int peer = -1;
    if (!is_window && handle == (intptr_t)world_comm) {
        peer = rank;
    } else {
        pthread_mutex_lock(&cache_lock);
        struct group *g = group_of(handle, is_window);
        if (g != NULL && rank < g->size) peer = g->world[rank];
        pthread_mutex_unlock(&cache_lock);
    }
    numaloc_rank_message(peer, bytes, kind); /* a peer in another world (negative) does not count */
}

static void sent(MPI_Comm comm, int rank, MPI_Count n, MPI_Datatype type) {
    count((handle)comm, 0, rank, size_of(n, type), NUMALOC_POINT_TO_POINT);
}
static void put(MPI_Win win, int rank, MPI_Count n, MPI_Datatype type) {
    count((handle)win, 1, rank, size_of(n, type), NUMALOC_PUT);
}
static void got(MPI_Win win, int rank, MPI_Count n, MPI_Datatype type) {
    count((handle)win, 1, rank, size_of(n, type), NUMALOC_GET);
}

/* ---- persistent sends ---- */

/* The messages of a collective that is started later. */
struct messages {
    uint32_t count, room;
    struct {
        int peer;
        uint64_t bytes;
    } list[];
};

struct request {
    struct request *next;
    MPI_Request request;
    MPI_Comm comm;
    int rank, tag, is_receive;
    uint64_t bytes;
    struct messages *messages; /* of a collective */
};
#define BUCKETS 1024u
static struct request *requests[BUCKETS];
static pthread_mutex_t request_lock = PTHREAD_MUTEX_INITIALIZER;

static struct request **bucket(MPI_Request request) {
    return &requests[hash((handle)request) >> 22];
}

/* The tag of a request whose messages have none: it is not timed. */
#define NO_TAG INT32_MIN

static void remembered(MPI_Request request, MPI_Comm comm, int rank, int tag, uint64_t bytes, int is_receive,
                       struct messages *messages) {
    struct request *node = malloc(sizeof *node);
    if (node == NULL) {
        free(messages);
        return;
    }
    *node = (struct request){NULL, request, comm, rank, tag, is_receive, bytes, messages};
    pthread_mutex_lock(&request_lock);
    node->next = *bucket(request);
    *bucket(request) = node;
    pthread_mutex_unlock(&request_lock);
}

static void prepared(MPI_Request request, MPI_Comm comm, int rank, int tag, uint64_t bytes, int is_receive) {
    remembered(request, comm, rank, tag, bytes, is_receive, NULL);
}

static void released(MPI_Request request) {
    pthread_mutex_lock(&request_lock);
    for (struct request **at = bucket(request); *at; at = &(*at)->next)
        if ((*at)->request == request) {
            struct request *gone = *at;
            *at = gone->next;
            free(gone->messages);
            free(gone);
            break;
        }
    pthread_mutex_unlock(&request_lock);
}

/* What a persistent request stands for; of no request: nothing that is sent or received. */
static struct request persistent(MPI_Request request) {
    struct request found = {.rank = -1, .tag = NO_TAG};
    pthread_mutex_lock(&request_lock);
    for (struct request *at = *bucket(request); at; at = at->next)
        if (at->request == request) {
            found = *at;
            break;
        }
    pthread_mutex_unlock(&request_lock);
    return found;
}

static void started(int n, const MPI_Request *request) {
    for (int i = 0; i < n; i++) {
        struct request found = persistent(request[i]);
        if (found.rank >= 0 && !found.is_receive)
            count((handle)found.comm, 0, found.rank, found.bytes, NUMALOC_PERSISTENT);
        for (uint32_t k = 0; found.messages != NULL && k < found.messages->count; k++)
            if (counted(EVERYTHING))
                numaloc_rank_message(found.messages->list[k].peer, found.messages->list[k].bytes, NUMALOC_MODELLED);
    }
}

#include "calls.h"

/* ---- collectives ---- */

static void modelled(void *world, int peer, uint64_t bytes) {
    numaloc_rank_message(((const int *)world)[peer], bytes, NUMALOC_MODELLED);
}

/* Runs `model` for this rank of `comm`. Holds the lock meanwhile, because rank tables must not move. */
#define MODEL(comm, ...)                                                                           \
    do {                                                                                           \
        pthread_mutex_lock(&cache_lock);                                                           \
        struct group *g = group_of((handle)(comm), 0);                                                \
        if (g != NULL && !g->inter && g->me >= 0) {                                                \
            struct numaloc_collective c = {g->me, g->size, modelled, g->world};                    \
            (void)c;                                                                               \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
        pthread_mutex_unlock(&cache_lock);                                                         \
    } while (0)

struct collector {
    const int *world;
    struct messages *found;
};

__attribute__((unused)) static void collected(void *context, int peer, uint64_t bytes) {
    struct collector *to = context;
    struct messages *found = to->found;
    if (found == NULL || found->count == found->room) {
        uint32_t room = found ? 2 * found->room : 8;
        found = realloc(found, sizeof *found + room * sizeof found->list[0]);
        if (found == NULL) return;
        if (to->found == NULL) found->count = 0;
        found->room = room;
        to->found = found;
    }
    found->list[found->count].peer = to->world[peer];
    found->list[found->count++].bytes = bytes;
}

/* The same as MODEL for a request: its messages are kept. */
#define COLLECT(comm, request, ...)                                                                \
    do {                                                                                           \
        struct collector to = {NULL, NULL};                                                        \
        pthread_mutex_lock(&cache_lock);                                                           \
        struct group *g = group_of((handle)(comm), 0);                                             \
        if (g != NULL && !g->inter && g->me >= 0) {                                                \
            to.world = g->world;                                                                   \
            struct numaloc_collective c = {g->me, g->size, collected, &to};                        \
            (void)c;                                                                               \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
        pthread_mutex_unlock(&cache_lock);                                                         \
        if (to.found != NULL) remembered(request, comm, -1, NO_TAG, 0, 0, to.found);               \
    } while (0)

struct blocks { /* the blocks of a vector collective */
    const int *counts;
    const MPI_Count *large;
    const MPI_Datatype *types; /* one per block, or NULL: `each` is the bytes of one element */
    uint64_t each;
};

static uint64_t block(const void *of, int k) {
    const struct blocks *b = of;
    MPI_Count n = b->counts ? b->counts[k] : b->large[k];
    return b->types ? size_of(n, b->types[k]) : n > 0 ? (uint64_t)n * b->each : 0;
}

static uint64_t equal(const void *of, int k) {
    (void)k;
    return *(const uint64_t *)of;
}

/* A vector argument as `struct blocks`, for either width of counts. */
#define BLOCKS(array, array_types, type)                                                           \
    (struct blocks){__builtin_types_compatible_p(__typeof__(*(array)), int) ? (const void *)(array) : NULL, \
                    __builtin_types_compatible_p(__typeof__(*(array)), int) ? NULL : (const void *)(array), \
                    array_types, array_types ? 0 : size_of(1, type)}

/* Neighbourhood collectives: one message to each neighbour, of the k-th block if blocks differ. */
static void to_neighbours(MPI_Comm comm, const struct numaloc_collective *c, numaloc_block *bytes,
                          const void *of) {
    int kind = 0, n = 0, other = 0, weighted = 0;
    mpi.Topo_test(comm, &kind);
    if (kind == MPI_CART) {
        mpi.Cartdim_get(comm, &n);
        for (int d = 0; d < n; d++) {
            int before = -1, after = -1;
            mpi.Cart_shift(comm, d, 1, &before, &after);
            if (before >= 0) c->send(c->context, before, bytes(of, 2 * d));
            if (after >= 0) c->send(c->context, after, bytes(of, 2 * d + 1));
        }
        return;
    }
    if (kind == MPI_GRAPH) mpi.Graph_neighbors_count(comm, c->me, &n);
    else if (kind == MPI_DIST_GRAPH) mpi.Dist_graph_neighbors_count(comm, &other, &n, &weighted);
    int *peers = malloc(sizeof(int) * (size_t)(n + 2 * other + n + 1));
    if (peers != NULL && n > 0) {
        if (kind == MPI_GRAPH)
            mpi.Graph_neighbors(comm, c->me, n, peers);
        else
            mpi.Dist_graph_neighbors(comm, other, peers + n, peers + n + other, n, peers,
                                      peers + n + 2 * other);
        for (int k = 0; k < n; k++)
            if (peers[k] >= 0) c->send(c->context, peers[k], bytes(of, k));
    }
    free(peers);
}

/* ---- the wrappers ---- */

/* Nonzero while a call of the program runs in this thread: nested calls are the library's. */
static __thread int depth __attribute__((tls_model("initial-exec")));

/* Whether this is a call of the library itself: those have PMPI_ names. Open MPI's monitoring shows such messages too. */
#ifdef NUMALOC_FOR_OPEN_MPI
#define IS_INNER(name) 0
#else
#define IS_INNER(name)                                                                             \
    (#name[0] == 'P' && numaloc_same_object((void *)next, __builtin_return_address(0)))
#endif

#define NEXT(name, parameters)                                                                     \
    static int(*_Atomic next) parameters;                                                          \
    if (__builtin_expect(next == NULL, 0)) next = (int(*) parameters)numaloc_library_function(#name); \
    if (next == NULL) return NUMALOC_ERR_OTHER /* the library has no such function */

/* Whether the program itself calls, and what is noted when the call begins and ends (timing.h). */
#define ENTER(name) int outer = depth++ == 0 && counts(REST) && !IS_INNER(name)
#define STAMP(name)                                                                                \
    static uint32_t operation;                                                                     \
    struct numaloc_call call = {0};                                                                \
    (void)call;                                                                                    \
    if (outer) {                                                                                   \
        if (__builtin_expect(operation == 0, 0)) operation = numaloc_time_operation(&#name[#name[0] == 'P']); \
        call.operation = operation;                                                                \
        call.site = __builtin_return_address(0);                                                   \
        call.begin = numaloc_time_now();                                                           \
    }
#define LEAVE(...)                                                                                 \
    depth--;                                                                                       \
    if (outer && numaloc_time_is_on()) {                                                           \
        call.end = numaloc_time_now();                                                             \
        numaloc_time_lock();                                                                       \
        __VA_ARGS__;                                                                               \
        numaloc_time_unlock();                                                                     \
    }

/* Counts, then calls, then does `after`; with `least` REST it counts also if the monitoring layer counts the rest. */
#define WRAP_ONE(name, least, parameters, arguments, after, ...)                                   \
    EXPORT int name parameters;                                                                    \
    int name parameters {                                                                          \
        NEXT(name, parameters);                                                                    \
        ENTER(name);                                                                               \
        if (outer && counted(least)) __VA_ARGS__;                                                  \
        STAMP(name);                                                                               \
        int result = next arguments;                                                               \
        LEAVE(after);                                                                              \
        return result;                                                                             \
    }
/* The same for calls that receive from `from` with `tag`. */
#define WRAP_IN(name, parameters, arguments, from, tag, after, ...)                                \
    EXPORT int name parameters;                                                                    \
    int name parameters {                                                                          \
        NEXT(name, parameters);                                                                    \
        ENTER(name);                                                                               \
        if (outer && counted(EVERYTHING)) __VA_ARGS__;                                             \
        MPI_Status own, *asked = outer ? in_status(&own, from, tag, status) : status;              \
        STAMP(name);                                                                               \
        int result = next arguments;                                                               \
        LEAVE(after);                                                                              \
        return result;                                                                             \
    }
/* Calls, then records the request that was created. */
#define WRAP_INIT(name, parameters, arguments, ...)                                                \
    EXPORT int name parameters;                                                                    \
    int name parameters {                                                                          \
        NEXT(name, parameters);                                                                    \
        ENTER(name);                                                                               \
        int result = next arguments;                                                               \
        depth--;                                                                                   \
        if (result == 0 && outer) __VA_ARGS__;                                                     \
        return result;                                                                             \
    }
#ifdef NUMALOC_FOR_OPEN_MPI
#define NUMALOC_ERR_OTHER 16
#define BOTH(macro, name) macro(name, int)
#define LARGE(...)
#else
#define NUMALOC_ERR_OTHER 15
#define BOTH(macro, name) macro(name, int) macro(name##_c, MPI_Count)
#define LARGE(...) __VA_ARGS__ /* MPI 4's calls with MPI_Count */
#endif
#define BOTH_NAMES(macro, name, ...) macro(MPI_##name, __VA_ARGS__) macro(PMPI_##name, __VA_ARGS__)
#define WRAP(name, parameters, arguments, after, ...)                                              \
    BOTH_NAMES(WRAP_ONE, name, EVERYTHING, parameters, arguments, after, __VA_ARGS__)
#define WRAP_REST(name, parameters, arguments, after, ...)                                         \
    BOTH_NAMES(WRAP_ONE, name, REST, parameters, arguments, after, __VA_ARGS__)
/* Of calls that are only timed. */
#define TIMED(name, parameters, arguments, ...)                                                    \
    BOTH_NAMES(WRAP_ONE, name, REST, parameters, arguments, (__VA_ARGS__), (void)0)

#define SEND(name, count_t)                                                                        \
    WRAP(name, (const void *data, count_t n, MPI_Datatype type, int rank, int tag, MPI_Comm comm), \
         (data, n, type, rank, tag, comm),                                                         \
         time_send(&call, comm, rank, tag, size_of(n, type), NULL), sent(comm, rank, n, type))
#define ISEND(name, count_t)                                                                       \
    WRAP(name, (const void *data, count_t n, MPI_Datatype type, int rank, int tag, MPI_Comm comm,  \
                MPI_Request *request),                                                             \
         (data, n, type, rank, tag, comm, request),                                                \
         time_send(&call, comm, rank, tag, size_of(n, type), request), sent(comm, rank, n, type))
#define SEND_INIT(name, count_t)                                                                   \
    BOTH_NAMES(WRAP_INIT, name, (const void *data, count_t n, MPI_Datatype type, int rank, int tag, \
                                 MPI_Comm comm, MPI_Request *request),                             \
               (data, n, type, rank, tag, comm, request), \
               prepared(*request, comm, rank, tag, size_of(n, type), 0))

BOTH(SEND, Send) BOTH(SEND, Bsend) BOTH(SEND, Ssend) BOTH(SEND, Rsend)
BOTH(ISEND, Isend) BOTH(ISEND, Ibsend) BOTH(ISEND, Issend) BOTH(ISEND, Irsend)
BOTH(SEND_INIT, Send_init) BOTH(SEND_INIT, Bsend_init)
BOTH(SEND_INIT, Ssend_init) BOTH(SEND_INIT, Rsend_init)

#define SENDRECV(name, count_t)                                                                    \
    BOTH_NAMES(WRAP_IN, name, (const void *data, count_t n, MPI_Datatype type, int rank, int tag, void *in, \
               count_t m, MPI_Datatype in_type, int from, int in_tag, MPI_Comm comm, MPI_Status *status), \
         (data, n, type, rank, tag, in, m, in_type, from, in_tag, comm, asked), from, in_tag,  \
         time_exchange(&call, comm, rank, tag, from, in_tag, size_of(n, type), asked), sent(comm, rank, n, type))
#define SENDRECV_REPLACE(name, count_t)                                                            \
    BOTH_NAMES(WRAP_IN, name, (void *data, count_t n, MPI_Datatype type, int rank, int tag, int from, int in_tag, \
                MPI_Comm comm, MPI_Status *status),                                                \
         (data, n, type, rank, tag, from, in_tag, comm, asked), from, in_tag,                  \
         time_exchange(&call, comm, rank, tag, from, in_tag, size_of(n, type), asked), sent(comm, rank, n, type))
#define ISENDRECV(name, count_t)                                                                   \
    WRAP(name, (const void *data, count_t n, MPI_Datatype type, int rank, int tag, void *in, count_t m, \
                MPI_Datatype in_type, int from, int in_tag, MPI_Comm comm, MPI_Request *request),  \
         (data, n, type, rank, tag, in, m, in_type, from, in_tag, comm, request),             \
         time_call(&call, comm, size_of(n, type)), sent(comm, rank, n, type))
#define ISENDRECV_REPLACE(name, count_t)                                                           \
    WRAP(name, (void *data, count_t n, MPI_Datatype type, int rank, int tag, int from, int in_tag, \
                MPI_Comm comm, MPI_Request *request),                                              \
         (data, n, type, rank, tag, from, in_tag, comm, request),                                  \
         time_call(&call, comm, size_of(n, type)), sent(comm, rank, n, type))
BOTH(SENDRECV, Sendrecv) BOTH(SENDRECV_REPLACE, Sendrecv_replace)
BOTH(ISENDRECV, Isendrecv) BOTH(ISENDRECV_REPLACE, Isendrecv_replace)

/* Partitioned sends: each start sends all partitions. */
BOTH_NAMES(WRAP_INIT, Psend_init,
           (const void *data, int partitions, MPI_Count n, MPI_Datatype type, int rank, int tag, MPI_Comm comm,
            MPI_Info info, MPI_Request *request),
           (data, partitions, n, type, rank, tag, comm, info, request),
           prepared(*request, comm, rank, NO_TAG, partitions > 0 ? (uint64_t)partitions * size_of(n, type) : 0, 0))

WRAP_REST(Start, (MPI_Request *request), (request), time_start(&call, 1, request), started(1, request))
WRAP_REST(Startall, (int n, MPI_Request *all), (n, all), time_start(&call, n, all), started(n, all))
WRAP_REST(Request_free, (MPI_Request *request), (request), (void)0, { released(*request); forget_request(*request); })
WRAP_REST(Comm_free, (MPI_Comm *comm), (comm), numaloc_time_add(&call, 0, 0), { forget((handle)*comm); forget_comm(*comm); })
WRAP_REST(Comm_disconnect, (MPI_Comm *comm), (comm), numaloc_time_add(&call, 0, 0), { forget((handle)*comm); forget_comm(*comm); })
WRAP_REST(Win_free, (MPI_Win *win), (win), numaloc_time_add(&call, 0, 0), forget((handle)*win))

#define TARGET(count_t) int rank, MPI_Aint at, count_t m, MPI_Datatype there
#define PUT(name, count_t, more_parameters, more_arguments)                                        \
    WRAP_REST(name, (const void *data, count_t n, MPI_Datatype type, TARGET(count_t) UNPACK more_parameters), \
         (data, n, type, rank, at, m, there UNPACK more_arguments), numaloc_time_add(&call, 0, size_of(n, type)), put(win, rank, n, type))
#define GET(name, count_t, more_parameters, more_arguments)                                        \
    WRAP_REST(name, (void *data, count_t n, MPI_Datatype type, TARGET(count_t) UNPACK more_parameters), \
         (data, n, type, rank, at, m, there UNPACK more_arguments), numaloc_time_add(&call, 0, size_of(n, type)), got(win, rank, n, type))
#define GET_ACCUMULATE(name, count_t, more_parameters, more_arguments)                             \
    WRAP_REST(name, (const void *data, count_t n, MPI_Datatype type, void *in, count_t k, MPI_Datatype in_type, \
                TARGET(count_t), MPI_Op op UNPACK more_parameters),                                \
         (data, n, type, in, k, in_type, rank, at, m, there, op UNPACK more_arguments),            \
         numaloc_time_add(&call, 0, size_of(n, type)), { put(win, rank, n, type); got(win, rank, k, in_type); })
#define WIN (, MPI_Win win), (, win)
#define WIN_REQUEST (, MPI_Win win, MPI_Request *request), (, win, request)
#define OP_WIN (, MPI_Op op, MPI_Win win), (, op, win)
#define OP_WIN_REQUEST (, MPI_Op op, MPI_Win win, MPI_Request *request), (, op, win, request)
#define APPLY(macro, ...) macro(__VA_ARGS__) /* expands WIN and the like into two arguments */
APPLY(PUT, Put, int, WIN) LARGE(APPLY(PUT, Put_c, MPI_Count, WIN))
APPLY(PUT, Rput, int, WIN_REQUEST) LARGE(APPLY(PUT, Rput_c, MPI_Count, WIN_REQUEST))
APPLY(PUT, Accumulate, int, OP_WIN) LARGE(APPLY(PUT, Accumulate_c, MPI_Count, OP_WIN))
APPLY(PUT, Raccumulate, int, OP_WIN_REQUEST) LARGE(APPLY(PUT, Raccumulate_c, MPI_Count, OP_WIN_REQUEST))
APPLY(GET, Get, int, WIN) LARGE(APPLY(GET, Get_c, MPI_Count, WIN))
APPLY(GET, Rget, int, WIN_REQUEST) LARGE(APPLY(GET, Rget_c, MPI_Count, WIN_REQUEST))
APPLY(GET_ACCUMULATE, Get_accumulate, int, WIN) LARGE(APPLY(GET_ACCUMULATE, Get_accumulate_c, MPI_Count, WIN))
APPLY(GET_ACCUMULATE, Rget_accumulate, int, WIN_REQUEST)
LARGE(APPLY(GET_ACCUMULATE, Rget_accumulate_c, MPI_Count, WIN_REQUEST))
WRAP_REST(Fetch_and_op, (const void *data, void *in, MPI_Datatype type, int rank, MPI_Aint at, MPI_Op op, MPI_Win win),
     (data, in, type, rank, at, op, win), numaloc_time_add(&call, 0, size_of(1, type)), { put(win, rank, 1, type); got(win, rank, 1, type); })
WRAP_REST(Compare_and_swap, (const void *data, const void *compare, void *in, MPI_Datatype type, int rank,
                        MPI_Aint at, MPI_Win win),
     (data, compare, in, type, rank, at, win), numaloc_time_add(&call, 0, size_of(1, type)),
     { put(win, rank, 1, type); got(win, rank, 1, type); })

/* A collective and its nonblocking form. */
#define COLLECTIVE(name, iname, init, parameters, arguments, root, bytes, ...)                     \
    WRAP(name, (UNPACK parameters), arguments, time_collective(&call, comm, root, NULL, BYTES(bytes)), \
         MODEL(comm, __VA_ARGS__))                                                                 \
    WRAP(iname, (UNPACK parameters, MPI_Request *request), (UNPACK arguments, request),            \
         time_collective(&call, comm, root, request, BYTES(bytes)), MODEL(comm, __VA_ARGS__))      \
    PERSISTENT(init, parameters, arguments, __VA_ARGS__)
/* What a rank contributes; of inter-communicators the arguments mean something else. */
#define BYTES(bytes) ({ const struct comm *k = comm_of(comm); k == NULL || k->inter ? 0 : (bytes); })
/* Of neighbours: nothing waits for all ranks. */
#define NEIGHBOURS(name, iname, init, parameters, arguments, bytes, ...)                           \
    WRAP(name, (UNPACK parameters), arguments, time_call(&call, comm, bytes), MODEL(comm, __VA_ARGS__)) \
    WRAP(iname, (UNPACK parameters, MPI_Request *request), (UNPACK arguments, request),            \
         time_call(&call, comm, bytes), MODEL(comm, __VA_ARGS__))                                  \
    PERSISTENT(init, parameters, arguments, __VA_ARGS__)
/* MPI 4: each start sends what the request was made for. */
#define PERSISTENT(init, parameters, arguments, ...)                                               \
    LARGE(BOTH_NAMES(WRAP_INIT, init, (UNPACK parameters, MPI_Info info, MPI_Request *request),    \
                     (UNPACK arguments, info, request), COLLECT(comm, *request, __VA_ARGS__)))
/* The root whose arrival releases the others; -1: all ranks are waited for. */
#define ALL (-1)

COLLECTIVE(Barrier, Ibarrier, Barrier_init, (MPI_Comm comm), (comm), ALL, 0, numaloc_model_barrier(&c))

/* Each with counts of type N and displacements of type D; name, nonblocking name, suffix. */
#define COUNTED(N, D, _)                                                                           \
    COLLECTIVE(Bcast##_, Ibcast##_, Bcast_init##_, (void *data, N n, MPI_Datatype type, int root, MPI_Comm comm), \
               (data, n, type, root, comm), root, size_of(n, type), numaloc_model_bcast(&c, root, size_of(n, type)))       \
    COLLECTIVE(Reduce##_, Ireduce##_, Reduce_init##_, (const void *data, void *in, N n, MPI_Datatype type, MPI_Op op, \
                                       int root, MPI_Comm comm),                                   \
               (data, in, n, type, op, root, comm), ALL, size_of(n, type), numaloc_model_reduce(&c, root, size_of(n, type))) \
    COLLECTIVE(Allreduce##_, Iallreduce##_, Allreduce_init##_, (const void *data, void *in, N n, MPI_Datatype type,   \
                                             MPI_Op op, MPI_Comm comm),                            \
               (data, in, n, type, op, comm), ALL, size_of(n, type), numaloc_model_allreduce(&c, size_of(n, type)))       \
    COLLECTIVE(Scan##_, Iscan##_, Scan_init##_, (const void *data, void *in, N n, MPI_Datatype type, MPI_Op op,  \
                                   MPI_Comm comm),                                                 \
               (data, in, n, type, op, comm), ALL, size_of(n, type), numaloc_model_scan(&c, size_of(n, type)))            \
    COLLECTIVE(Exscan##_, Iexscan##_, Exscan_init##_, (const void *data, void *in, N n, MPI_Datatype type, MPI_Op op, \
                                       MPI_Comm comm),                                             \
               (data, in, n, type, op, comm), ALL, size_of(n, type), numaloc_model_scan(&c, size_of(n, type)))            \
    COLLECTIVE(Reduce_scatter_block##_, Ireduce_scatter_block##_, Reduce_scatter_block_init##_,                                  \
               (const void *data, void *in, N n, MPI_Datatype type, MPI_Op op, MPI_Comm comm),     \
               (data, in, n, type, op, comm), ALL, size_of(n, type),                                                      \
               { uint64_t each = size_of(n, type); numaloc_model_reduce_scatter(&c, equal, &each); }) \
    COLLECTIVE(Reduce_scatter##_, Ireduce_scatter##_, Reduce_scatter_init##_,                                              \
               (const void *data, void *in, const N *n, MPI_Datatype type, MPI_Op op, MPI_Comm comm), \
               (data, in, n, type, op, comm), ALL, TOTAL(n, type),                                                      \
               { struct blocks b = BLOCKS(n, NULL, type); numaloc_model_reduce_scatter(&c, block, &b); }) \
    COLLECTIVE(Gather##_, Igather##_, Gather_init##_, (const void *data, N n, MPI_Datatype type, void *in, N m,    \
                                       MPI_Datatype in_type, int root, MPI_Comm comm),             \
               (data, n, type, in, m, in_type, root, comm), ALL, data == MPI_IN_PLACE ? 0 : size_of(n, type),                                        \
               numaloc_model_gather(&c, root, data == MPI_IN_PLACE ? 0 : size_of(n, type)))        \
    COLLECTIVE(Gatherv##_, Igatherv##_, Gatherv_init##_, (const void *data, N n, MPI_Datatype type, void *in,       \
                                         const N *m, const D *at, MPI_Datatype in_type, int root,  \
                                         MPI_Comm comm),                                           \
               (data, n, type, in, m, at, in_type, root, comm), ALL, data == MPI_IN_PLACE ? 0 : size_of(n, type),                                    \
               if (c.me != root) c.send(c.context, root, size_of(n, type)))                        \
    COLLECTIVE(Scatter##_, Iscatter##_, Scatter_init##_, (const void *data, N n, MPI_Datatype type, void *in, N m,  \
                                         MPI_Datatype in_type, int root, MPI_Comm comm),           \
               (data, n, type, in, m, in_type, root, comm), root, k->me == root ? size_of(n, type) : size_of(m, in_type),                                        \
               numaloc_model_scatter(&c, root, c.me == root ? size_of(n, type) : size_of(m, in_type))) \
    COLLECTIVE(Scatterv##_, Iscatterv##_, Scatterv_init##_, (const void *data, const N *n, const D *at,              \
                                           MPI_Datatype type, void *in, N m, MPI_Datatype in_type, \
                                           int root, MPI_Comm comm),                               \
               (data, n, at, type, in, m, in_type, root, comm), root, k->me == root ? TOTAL(n, type) : size_of(m, in_type),                                    \
               if (c.me == root) {                                                                 \
                   struct blocks b = BLOCKS(n, NULL, type);                                        \
                   numaloc_model_alltoallv(&c, block, &b);                                         \
               })                                                                                  \
    COLLECTIVE(Allgather##_, Iallgather##_, Allgather_init##_, (const void *data, N n, MPI_Datatype type, void *in, N m, \
                                             MPI_Datatype in_type, MPI_Comm comm),                 \
               (data, n, type, in, m, in_type, comm), ALL, size_of(m, in_type), numaloc_model_allgather(&c, size_of(m, in_type))) \
    COLLECTIVE(Allgatherv##_, Iallgatherv##_, Allgatherv_init##_, (const void *data, N n, MPI_Datatype type, void *in, \
                                               const N *m, const D *at, MPI_Datatype in_type,      \
                                               MPI_Comm comm),                                     \
               (data, n, type, in, m, at, in_type, comm), ALL, data == MPI_IN_PLACE ? 0 : size_of(n, type),                                          \
               { struct blocks b = BLOCKS(m, NULL, in_type); numaloc_model_allgatherv(&c, block, &b); }) \
    COLLECTIVE(Alltoall##_, Ialltoall##_, Alltoall_init##_, (const void *data, N n, MPI_Datatype type, void *in, N m, \
                                           MPI_Datatype in_type, MPI_Comm comm),                   \
               (data, n, type, in, m, in_type, comm), ALL, size_of(m, in_type), numaloc_model_alltoall(&c, size_of(m, in_type))) \
    COLLECTIVE(Alltoallv##_, Ialltoallv##_, Alltoallv_init##_, (const void *data, const N *n, const D *at,            \
                                             MPI_Datatype type, void *in, const N *m,              \
                                             const D *in_at, MPI_Datatype in_type, MPI_Comm comm), \
               (data, n, at, type, in, m, in_at, in_type, comm), ALL, data == MPI_IN_PLACE ? TOTAL(m, in_type) : TOTAL(n, type),                                   \
               { struct blocks b = data == MPI_IN_PLACE ? BLOCKS(m, NULL, in_type) : BLOCKS(n, NULL, type); \
                 numaloc_model_alltoallv(&c, block, &b); })                                        \
    COLLECTIVE(Alltoallw##_, Ialltoallw##_, Alltoallw_init##_, (const void *data, const N *n, const D *at,            \
                                             const MPI_Datatype *type, void *in, const N *m,       \
                                             const D *in_at, const MPI_Datatype *in_type, MPI_Comm comm), \
               (data, n, at, type, in, m, in_at, in_type, comm), ALL, 0,                                   \
               { struct blocks b = data == MPI_IN_PLACE ? BLOCKS(m, in_type, 0) : BLOCKS(n, type, 0); \
                 numaloc_model_alltoallv(&c, block, &b); })                                        \
    NEIGHBOURS(Neighbor_allgather##_, Ineighbor_allgather##_, Neighbor_allgather_init##_,                                      \
               (const void *data, N n, MPI_Datatype type, void *in, N m, MPI_Datatype in_type, MPI_Comm comm), \
               (data, n, type, in, m, in_type, comm), size_of(n, type),                                              \
               { uint64_t each = size_of(n, type); to_neighbours(comm, &c, equal, &each); })       \
    NEIGHBOURS(Neighbor_allgatherv##_, Ineighbor_allgatherv##_, Neighbor_allgatherv_init##_,                                    \
               (const void *data, N n, MPI_Datatype type, void *in, const N *m, const D *at,       \
                MPI_Datatype in_type, MPI_Comm comm),                                              \
               (data, n, type, in, m, at, in_type, comm), size_of(n, type),                                          \
               { uint64_t each = size_of(n, type); to_neighbours(comm, &c, equal, &each); })       \
    NEIGHBOURS(Neighbor_alltoall##_, Ineighbor_alltoall##_, Neighbor_alltoall_init##_,                                        \
               (const void *data, N n, MPI_Datatype type, void *in, N m, MPI_Datatype in_type, MPI_Comm comm), \
               (data, n, type, in, m, in_type, comm), size_of(n, type),                                              \
               { uint64_t each = size_of(n, type); to_neighbours(comm, &c, equal, &each); })       \
    NEIGHBOURS(Neighbor_alltoallv##_, Ineighbor_alltoallv##_, Neighbor_alltoallv_init##_,                                      \
               (const void *data, const N *n, const D *at, MPI_Datatype type, void *in, const N *m, \
                const D *in_at, MPI_Datatype in_type, MPI_Comm comm),                              \
               (data, n, at, type, in, m, in_at, in_type, comm), 0,                                   \
               { struct blocks b = BLOCKS(n, NULL, type); to_neighbours(comm, &c, block, &b); })   \
    NEIGHBOURS(Neighbor_alltoallw##_, Ineighbor_alltoallw##_, Neighbor_alltoallw_init##_,                                      \
               (const void *data, const N *n, const MPI_Aint *at, const MPI_Datatype *type, void *in, \
                const N *m, const MPI_Aint *in_at, const MPI_Datatype *in_type, MPI_Comm comm),    \
               (data, n, at, type, in, m, in_at, in_type, comm), 0,                                   \
               { struct blocks b = BLOCKS(n, type, 0); to_neighbours(comm, &c, block, &b); })

#define TOTAL(array, type)                                                                         \
    ({ struct blocks b = BLOCKS(array, NULL, type); uint64_t sum = 0;                              \
       for (int i = 0; i < k->size; i++) sum += block(&b, i);                                      \
       sum; })

COUNTED(int, int, )
LARGE(COUNTED(MPI_Count, MPI_Aint, _c))

/* ---- receives, requests and other calls that are only timed ---- */

#include "timed.h"

/* ---- beginning and end: Fortran calls these by their PMPI names, with MPICH too ---- */

#define BEGIN_AND_END(prefix)                                                                      \
    EXPORT int prefix##_Init(int *argc, char ***argv);                                             \
    int prefix##_Init(int *argc, char ***argv) {                                                   \
        NEXT(prefix##_Init, (int *, char ***));                                                    \
        int status = next(argc, argv);                                                             \
        if (status == 0) (void)counts(REST);                                                       \
        return status;                                                                             \
    }                                                                                              \
    EXPORT int prefix##_Init_thread(int *argc, char ***argv, int required, int *provided);         \
    int prefix##_Init_thread(int *argc, char ***argv, int required, int *provided) {               \
        NEXT(prefix##_Init_thread, (int *, char ***, int, int *));                                 \
        int status = next(argc, argv, required, provided);                                         \
        if (status == 0) (void)counts(REST);                                                       \
        return status;                                                                             \
    }                                                                                              \
    EXPORT int prefix##_Finalize(void);                                                            \
    int prefix##_Finalize(void) {                                                                  \
        NEXT(prefix##_Finalize, (void));                                                           \
        numaloc_rank_close();                                                                      \
        return next();                                                                             \
    }
BEGIN_AND_END(MPI)
BEGIN_AND_END(PMPI)

/* Sessions: what the first one calls its world are the ranks of the launch. */
static void begin_session(MPI_Session session) {
    int initialized = 0;
    int (*world)(MPI_Session, const char *, MPI_Group *) =
        (int (*)(MPI_Session, const char *, MPI_Group *))numaloc_library_function("PMPI_Group_from_session_pset");
    if (has_session || world == NULL || !find_library() || mpi.Initialized(&initialized) != 0 || initialized) return;
    if (world(session, "mpi://WORLD", &session_world) != 0) return;
    first_session = session;
    has_session = 1;
    (void)counts(REST);
}

/* What is known of groups stays known; others cannot be determined after the first session's end. */
static void end_session(MPI_Session session) {
    if (!has_session || session != first_session) return;
    numaloc_rank_close();
    mpi.Group_free(&session_world);
    has_session = 0;
}

#define SESSIONS(prefix)                                                                           \
    EXPORT int prefix##_Session_init(MPI_Info info, MPI_Errhandler errors, MPI_Session *session);  \
    int prefix##_Session_init(MPI_Info info, MPI_Errhandler errors, MPI_Session *session) {        \
        NEXT(prefix##_Session_init, (MPI_Info, MPI_Errhandler, MPI_Session *));                    \
        int status = next(info, errors, session);                                                  \
        if (status == 0 && depth == 0) begin_session(*session);                                    \
        return status;                                                                             \
    }                                                                                              \
    EXPORT int prefix##_Session_finalize(MPI_Session *session);                                    \
    int prefix##_Session_finalize(MPI_Session *session) {                                          \
        NEXT(prefix##_Session_finalize, (MPI_Session *));                                          \
        if (depth == 0) end_session(*session);                                                     \
        return next(session);                                                                      \
    }
SESSIONS(MPI)
SESSIONS(PMPI)
