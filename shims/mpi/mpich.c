/* Frontend for MPICH and the libraries that share its binary interface (Intel MPI, MVAPICH, Cray MPICH):
 * the MPI profiling interface. MPICH's Fortran bindings (mpif.h, mpi, mpi_f08) call the C functions by
 * their MPI_ names, so wrapping these sees Fortran programs too.
 *
 * The library does not tell which messages a collective becomes: they are modelled (collective_model.c)
 * and marked so. Collectives on inter-communicators and the persistent collectives of MPI 4 are passed
 * on uncounted.
 *
 * Preloaded into every process of the run: PMPI functions are weak here, so that a process without MPI
 * (mpiexec, a shell) loads this as well and nothing happens. Types are those of MPICH's binary interface;
 * `make test` compiles this file once more against the real mpi.h, which would refuse a wrong prototype.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#include "collective_model.h"
#include "rank_file.h"

#ifdef NUMALOC_CHECK_AGAINST_MPI_H
#include <mpi.h>
#else
typedef int MPI_Comm, MPI_Datatype, MPI_Request, MPI_Win, MPI_Op, MPI_Group;
typedef long MPI_Aint, MPI_Count;
typedef struct MPI_Status MPI_Status; /* only passed on */
#define MPI_COMM_WORLD ((MPI_Comm)0x44000000)
#define MPI_COMM_NULL ((MPI_Comm)0x04000000)
#define MPI_IN_PLACE ((void *)-1)
enum { MPI_GRAPH = 1, MPI_CART = 2, MPI_DIST_GRAPH = 3 };
#endif

#define EXPORT __attribute__((visibility("default")))
#define WEAK __attribute__((weak))
#define UNPACK(...) __VA_ARGS__

WEAK int PMPI_Comm_rank(MPI_Comm, int *);
WEAK int PMPI_Comm_size(MPI_Comm, int *);
WEAK int PMPI_Comm_group(MPI_Comm, MPI_Group *);
WEAK int PMPI_Comm_remote_group(MPI_Comm, MPI_Group *);
WEAK int PMPI_Comm_test_inter(MPI_Comm, int *);
WEAK int PMPI_Comm_get_parent(MPI_Comm *);
WEAK int PMPI_Group_translate_ranks(MPI_Group, int, const int *, MPI_Group, int *);
WEAK int PMPI_Group_size(MPI_Group, int *);
WEAK int PMPI_Group_free(MPI_Group *);
WEAK int PMPI_Win_get_group(MPI_Win, MPI_Group *);
WEAK int PMPI_Type_size_x(MPI_Datatype, MPI_Count *);
WEAK int PMPI_Topo_test(MPI_Comm, int *);
WEAK int PMPI_Cartdim_get(MPI_Comm, int *);
WEAK int PMPI_Cart_shift(MPI_Comm, int, int, int *, int *);
WEAK int PMPI_Graph_neighbors_count(MPI_Comm, int, int *);
WEAK int PMPI_Graph_neighbors(MPI_Comm, int, int, int *);
WEAK int PMPI_Dist_graph_neighbors_count(MPI_Comm, int *, int *, int *);
WEAK int PMPI_Dist_graph_neighbors(MPI_Comm, int, int *, int *, int, int *, int *);

/* ---- ranks of communicators and windows in MPI_COMM_WORLD ---- */

#define CACHED 64u
struct group {
    int handle; /* of the communicator or window; their numbers never coincide. 0: free */
    int inter, me, size, *world;
};
static struct group cache[CACHED]; /* direct-mapped: a collision costs a translation, nothing else */
static pthread_mutex_t cache_lock = PTHREAD_MUTEX_INITIALIZER;

static struct group *slot(int handle) { return &cache[(unsigned)handle * 2654435761u >> 26]; }

static void drop(struct group *g) {
    free(g->world);
    *g = (struct group){0};
}

static void forget(int handle) {
    pthread_mutex_lock(&cache_lock);
    if (slot(handle)->handle == handle) drop(slot(handle));
    pthread_mutex_unlock(&cache_lock);
}

/* The group behind a handle; call with the lock held. NULL when it cannot be known. */
static struct group *group_of(int handle, int is_window) {
    struct group *g = slot(handle);
    if (g->handle == handle) return g;
    MPI_Group group, world;
    int inter = 0, me = -1, size = 0;
    if (is_window) {
        if (PMPI_Win_get_group((MPI_Win)handle, &group) != 0) return NULL;
    } else {
        if (PMPI_Comm_test_inter((MPI_Comm)handle, &inter) != 0) return NULL;
        PMPI_Comm_rank((MPI_Comm)handle, &me);
        if ((inter ? PMPI_Comm_remote_group : PMPI_Comm_group)((MPI_Comm)handle, &group) != 0) return NULL;
    }
    PMPI_Group_size(group, &size);
    int *from = malloc(sizeof(int) * (size_t)(size + 1)), *to = malloc(sizeof(int) * (size_t)(size + 1));
    int failed = from == NULL || to == NULL || PMPI_Comm_group(MPI_COMM_WORLD, &world) != 0;
    if (!failed) {
        for (int i = 0; i < size; i++) from[i] = i;
        failed = PMPI_Group_translate_ranks(group, size, from, world, to) != 0;
        PMPI_Group_free(&world);
    }
    PMPI_Group_free(&group);
    free(from);
    if (failed) {
        free(to);
        return NULL;
    }
    drop(g);
    *g = (struct group){handle, inter, me, size, to};
    return g;
}

/* ---- counting ---- */

static int opened;
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;

static void open_file(void) {
    pthread_mutex_lock(&open_lock);
    if (!opened) {
        int rank = 0, size = 0;
        MPI_Comm parent = MPI_COMM_NULL;
        opened = 1;
        if (PMPI_Comm_rank(MPI_COMM_WORLD, &rank) == 0 && PMPI_Comm_size(MPI_COMM_WORLD, &size) == 0) {
            PMPI_Comm_get_parent(&parent);
            numaloc_rank_open((uint32_t)rank, (uint32_t)size, parent == MPI_COMM_NULL ? "" : "spawned",
                              NUMALOC_PMPI);
        }
    }
    pthread_mutex_unlock(&open_lock);
}

static int ready(void) {
    if (!__atomic_load_n(&opened, __ATOMIC_ACQUIRE)) open_file();
    return numaloc_rank_is_open();
}

static uint64_t size_of(MPI_Count n, MPI_Datatype type) {
    MPI_Count size = 0;
    if (n <= 0 || PMPI_Type_size_x(type, &size) != 0 || size < 0) return 0;
    return (uint64_t)n * (uint64_t)size;
}

static void count(int handle, int is_window, int rank, uint64_t bytes, enum numaloc_kind kind) {
    if (rank < 0) return; /* MPI_PROC_NULL */
    int peer = -1;
    if (!is_window && handle == (int)MPI_COMM_WORLD) {
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
    count((int)comm, 0, rank, size_of(n, type), NUMALOC_POINT_TO_POINT);
}
static void put(MPI_Win win, int rank, MPI_Count n, MPI_Datatype type) {
    count((int)win, 1, rank, size_of(n, type), NUMALOC_PUT);
}
static void got(MPI_Win win, int rank, MPI_Count n, MPI_Datatype type) {
    count((int)win, 1, rank, size_of(n, type), NUMALOC_GET);
}

/* ---- persistent sends ---- */

struct request {
    struct request *next;
    MPI_Request request;
    MPI_Comm comm;
    int rank;
    uint64_t bytes;
};
#define BUCKETS 1024u
static struct request *requests[BUCKETS];
static pthread_mutex_t request_lock = PTHREAD_MUTEX_INITIALIZER;

static struct request **bucket(MPI_Request request) {
    return &requests[(unsigned)request * 2654435761u >> 22];
}

static void prepared(MPI_Request request, MPI_Comm comm, int rank, MPI_Count n, MPI_Datatype type) {
    struct request *node = malloc(sizeof *node);
    if (node == NULL) return;
    *node = (struct request){NULL, request, comm, rank, size_of(n, type)};
    pthread_mutex_lock(&request_lock);
    node->next = *bucket(request);
    *bucket(request) = node;
    pthread_mutex_unlock(&request_lock);
}

static void released(MPI_Request request) {
    pthread_mutex_lock(&request_lock);
    for (struct request **at = bucket(request); *at; at = &(*at)->next)
        if ((*at)->request == request) {
            struct request *gone = *at;
            *at = gone->next;
            free(gone);
            break;
        }
    pthread_mutex_unlock(&request_lock);
}

static void started(int n, const MPI_Request *request) {
    for (int i = 0; i < n; i++) {
        struct request found = {.rank = -1};
        pthread_mutex_lock(&request_lock);
        for (struct request *at = *bucket(request[i]); at; at = at->next)
            if (at->request == request[i]) {
                found = *at;
                break;
            }
        pthread_mutex_unlock(&request_lock);
        if (found.rank >= 0) count((int)found.comm, 0, found.rank, found.bytes, NUMALOC_PERSISTENT);
    }
}

/* ---- collectives ---- */

static void modelled(void *world, int peer, uint64_t bytes) {
    numaloc_rank_message(((const int *)world)[peer], bytes, NUMALOC_MODELLED);
}

/* Runs `model` for this rank of `comm`. The lock is held for so long: rank tables must not move. */
#define MODEL(comm, ...)                                                                           \
    do {                                                                                           \
        pthread_mutex_lock(&cache_lock);                                                           \
        struct group *g = group_of((int)(comm), 0);                                                \
        if (g != NULL && !g->inter && g->me >= 0) {                                                \
            struct numaloc_collective c = {g->me, g->size, modelled, g->world};                    \
            (void)c;                                                                               \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
        pthread_mutex_unlock(&cache_lock);                                                         \
    } while (0)

struct blocks { /* how a vector collective names its blocks */
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

/* Neighbourhood collectives: one message to each neighbour, of the k-th block where blocks differ. */
static void to_neighbours(MPI_Comm comm, const struct numaloc_collective *c, numaloc_block *bytes,
                          const void *of) {
    int kind = 0, n = 0, other = 0, weighted = 0;
    PMPI_Topo_test(comm, &kind);
    if (kind == MPI_CART) {
        PMPI_Cartdim_get(comm, &n);
        for (int d = 0; d < n; d++) {
            int before = -1, after = -1;
            PMPI_Cart_shift(comm, d, 1, &before, &after);
            if (before >= 0) c->send(c->context, before, bytes(of, 2 * d));
            if (after >= 0) c->send(c->context, after, bytes(of, 2 * d + 1));
        }
        return;
    }
    if (kind == MPI_GRAPH) PMPI_Graph_neighbors_count(comm, c->me, &n);
    else if (kind == MPI_DIST_GRAPH) PMPI_Dist_graph_neighbors_count(comm, &other, &n, &weighted);
    int *peers = malloc(sizeof(int) * (size_t)(n + 2 * other + n + 1));
    if (peers != NULL && n > 0) {
        if (kind == MPI_GRAPH)
            PMPI_Graph_neighbors(comm, c->me, n, peers);
        else
            PMPI_Dist_graph_neighbors(comm, other, peers + n, peers + n + other, n, peers,
                                      peers + n + 2 * other);
        for (int k = 0; k < n; k++)
            if (peers[k] >= 0) c->send(c->context, peers[k], bytes(of, k));
    }
    free(peers);
}

/* ---- the wrappers ---- */

#define WRAP(name, parameters, arguments, ...)                                                     \
    WEAK int PMPI_##name parameters;                                                               \
    EXPORT int MPI_##name parameters;                                                              \
    int MPI_##name parameters {                                                                    \
        if (ready()) __VA_ARGS__;                                                                  \
        return PMPI_##name arguments;                                                              \
    }

#define SEND(name, count_t)                                                                        \
    WRAP(name, (const void *data, count_t n, MPI_Datatype type, int rank, int tag, MPI_Comm comm), \
         (data, n, type, rank, tag, comm), sent(comm, rank, n, type))
#define ISEND(name, count_t)                                                                       \
    WRAP(name, (const void *data, count_t n, MPI_Datatype type, int rank, int tag, MPI_Comm comm,  \
                MPI_Request *request),                                                             \
         (data, n, type, rank, tag, comm, request), sent(comm, rank, n, type))
#define SEND_INIT(name, count_t)                                                                   \
    WEAK int PMPI_##name(const void *, count_t, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);  \
    EXPORT int MPI_##name(const void *data, count_t n, MPI_Datatype type, int rank, int tag,       \
                          MPI_Comm comm, MPI_Request *request);                                    \
    int MPI_##name(const void *data, count_t n, MPI_Datatype type, int rank, int tag,              \
                   MPI_Comm comm, MPI_Request *request) {                                          \
        int status = PMPI_##name(data, n, type, rank, tag, comm, request);                         \
        if (status == 0 && ready()) prepared(*request, comm, rank, n, type);                       \
        return status;                                                                             \
    }
#define BOTH(macro, name) macro(name, int) macro(name##_c, MPI_Count)

BOTH(SEND, Send) BOTH(SEND, Bsend) BOTH(SEND, Ssend) BOTH(SEND, Rsend)
BOTH(ISEND, Isend) BOTH(ISEND, Ibsend) BOTH(ISEND, Issend) BOTH(ISEND, Irsend)
BOTH(SEND_INIT, Send_init) BOTH(SEND_INIT, Bsend_init)
BOTH(SEND_INIT, Ssend_init) BOTH(SEND_INIT, Rsend_init)

#define SENDRECV(name, count_t)                                                                    \
    WRAP(name, (const void *data, count_t n, MPI_Datatype type, int rank, int tag, void *in, count_t m, \
                MPI_Datatype in_type, int from, int in_tag, MPI_Comm comm, MPI_Status *status),    \
         (data, n, type, rank, tag, in, m, in_type, from, in_tag, comm, status), sent(comm, rank, n, type))
#define SENDRECV_REPLACE(name, count_t)                                                            \
    WRAP(name, (void *data, count_t n, MPI_Datatype type, int rank, int tag, int from, int in_tag, \
                MPI_Comm comm, MPI_Status *status),                                                \
         (data, n, type, rank, tag, from, in_tag, comm, status), sent(comm, rank, n, type))
BOTH(SENDRECV, Sendrecv) BOTH(SENDRECV_REPLACE, Sendrecv_replace)

WRAP(Start, (MPI_Request *request), (request), started(1, request))
WRAP(Startall, (int n, MPI_Request *all), (n, all), started(n, all))
WRAP(Request_free, (MPI_Request *request), (request), released(*request))
WRAP(Comm_free, (MPI_Comm *comm), (comm), forget((int)*comm))
WRAP(Comm_disconnect, (MPI_Comm *comm), (comm), forget((int)*comm))
WRAP(Win_free, (MPI_Win *win), (win), forget((int)*win))

#define TARGET(count_t) int rank, MPI_Aint at, count_t m, MPI_Datatype there
#define PUT(name, count_t, more_parameters, more_arguments)                                        \
    WRAP(name, (const void *data, count_t n, MPI_Datatype type, TARGET(count_t) UNPACK more_parameters), \
         (data, n, type, rank, at, m, there UNPACK more_arguments), put(win, rank, n, type))
#define GET(name, count_t, more_parameters, more_arguments)                                        \
    WRAP(name, (void *data, count_t n, MPI_Datatype type, TARGET(count_t) UNPACK more_parameters), \
         (data, n, type, rank, at, m, there UNPACK more_arguments), got(win, rank, n, type))
#define GET_ACCUMULATE(name, count_t, more_parameters, more_arguments)                             \
    WRAP(name, (const void *data, count_t n, MPI_Datatype type, void *in, count_t k, MPI_Datatype in_type, \
                TARGET(count_t), MPI_Op op UNPACK more_parameters),                                \
         (data, n, type, in, k, in_type, rank, at, m, there, op UNPACK more_arguments),            \
         { put(win, rank, n, type); got(win, rank, k, in_type); })
#define WIN (, MPI_Win win), (, win)
#define WIN_REQUEST (, MPI_Win win, MPI_Request *request), (, win, request)
#define OP_WIN (, MPI_Op op, MPI_Win win), (, op, win)
#define OP_WIN_REQUEST (, MPI_Op op, MPI_Win win, MPI_Request *request), (, op, win, request)
#define APPLY(macro, ...) macro(__VA_ARGS__) /* expands WIN and the like into two arguments */
APPLY(PUT, Put, int, WIN) APPLY(PUT, Put_c, MPI_Count, WIN)
APPLY(PUT, Rput, int, WIN_REQUEST) APPLY(PUT, Rput_c, MPI_Count, WIN_REQUEST)
APPLY(PUT, Accumulate, int, OP_WIN) APPLY(PUT, Accumulate_c, MPI_Count, OP_WIN)
APPLY(PUT, Raccumulate, int, OP_WIN_REQUEST) APPLY(PUT, Raccumulate_c, MPI_Count, OP_WIN_REQUEST)
APPLY(GET, Get, int, WIN) APPLY(GET, Get_c, MPI_Count, WIN)
APPLY(GET, Rget, int, WIN_REQUEST) APPLY(GET, Rget_c, MPI_Count, WIN_REQUEST)
APPLY(GET_ACCUMULATE, Get_accumulate, int, WIN) APPLY(GET_ACCUMULATE, Get_accumulate_c, MPI_Count, WIN)
APPLY(GET_ACCUMULATE, Rget_accumulate, int, WIN_REQUEST)
APPLY(GET_ACCUMULATE, Rget_accumulate_c, MPI_Count, WIN_REQUEST)
WRAP(Fetch_and_op, (const void *data, void *in, MPI_Datatype type, int rank, MPI_Aint at, MPI_Op op, MPI_Win win),
     (data, in, type, rank, at, op, win), { put(win, rank, 1, type); got(win, rank, 1, type); })
WRAP(Compare_and_swap, (const void *data, const void *compare, void *in, MPI_Datatype type, int rank,
                        MPI_Aint at, MPI_Win win),
     (data, compare, in, type, rank, at, win), { put(win, rank, 1, type); got(win, rank, 1, type); })

/* A collective and its non-blocking form. */
#define COLLECTIVE(name, iname, parameters, arguments, ...)                                        \
    WRAP(name, (UNPACK parameters), arguments, MODEL(comm, __VA_ARGS__))                           \
    WRAP(iname, (UNPACK parameters, MPI_Request *request), (UNPACK arguments, request), \
         MODEL(comm, __VA_ARGS__))

COLLECTIVE(Barrier, Ibarrier, (MPI_Comm comm), (comm), numaloc_model_barrier(&c))

/* Each with counts of type N and displacements of type D; name, its non-blocking name, ending. */
#define COUNTED(N, D, _)                                                                           \
    COLLECTIVE(Bcast##_, Ibcast##_, (void *data, N n, MPI_Datatype type, int root, MPI_Comm comm), \
               (data, n, type, root, comm), numaloc_model_bcast(&c, root, size_of(n, type)))       \
    COLLECTIVE(Reduce##_, Ireduce##_, (const void *data, void *in, N n, MPI_Datatype type, MPI_Op op, \
                                       int root, MPI_Comm comm),                                   \
               (data, in, n, type, op, root, comm), numaloc_model_reduce(&c, root, size_of(n, type))) \
    COLLECTIVE(Allreduce##_, Iallreduce##_, (const void *data, void *in, N n, MPI_Datatype type,   \
                                             MPI_Op op, MPI_Comm comm),                            \
               (data, in, n, type, op, comm), numaloc_model_allreduce(&c, size_of(n, type)))       \
    COLLECTIVE(Scan##_, Iscan##_, (const void *data, void *in, N n, MPI_Datatype type, MPI_Op op,  \
                                   MPI_Comm comm),                                                 \
               (data, in, n, type, op, comm), numaloc_model_scan(&c, size_of(n, type)))            \
    COLLECTIVE(Exscan##_, Iexscan##_, (const void *data, void *in, N n, MPI_Datatype type, MPI_Op op, \
                                       MPI_Comm comm),                                             \
               (data, in, n, type, op, comm), numaloc_model_scan(&c, size_of(n, type)))            \
    COLLECTIVE(Reduce_scatter_block##_, Ireduce_scatter_block##_,                                  \
               (const void *data, void *in, N n, MPI_Datatype type, MPI_Op op, MPI_Comm comm),     \
               (data, in, n, type, op, comm),                                                      \
               { uint64_t each = size_of(n, type); numaloc_model_reduce_scatter(&c, equal, &each); }) \
    COLLECTIVE(Reduce_scatter##_, Ireduce_scatter##_,                                              \
               (const void *data, void *in, const N *n, MPI_Datatype type, MPI_Op op, MPI_Comm comm), \
               (data, in, n, type, op, comm),                                                      \
               { struct blocks b = BLOCKS(n, NULL, type); numaloc_model_reduce_scatter(&c, block, &b); }) \
    COLLECTIVE(Gather##_, Igather##_, (const void *data, N n, MPI_Datatype type, void *in, N m,    \
                                       MPI_Datatype in_type, int root, MPI_Comm comm),             \
               (data, n, type, in, m, in_type, root, comm),                                        \
               numaloc_model_gather(&c, root, data == MPI_IN_PLACE ? 0 : size_of(n, type)))        \
    COLLECTIVE(Gatherv##_, Igatherv##_, (const void *data, N n, MPI_Datatype type, void *in,       \
                                         const N *m, const D *at, MPI_Datatype in_type, int root,  \
                                         MPI_Comm comm),                                           \
               (data, n, type, in, m, at, in_type, root, comm),                                    \
               if (c.me != root) c.send(c.context, root, size_of(n, type)))                        \
    COLLECTIVE(Scatter##_, Iscatter##_, (const void *data, N n, MPI_Datatype type, void *in, N m,  \
                                         MPI_Datatype in_type, int root, MPI_Comm comm),           \
               (data, n, type, in, m, in_type, root, comm),                                        \
               numaloc_model_scatter(&c, root, c.me == root ? size_of(n, type) : size_of(m, in_type))) \
    COLLECTIVE(Scatterv##_, Iscatterv##_, (const void *data, const N *n, const D *at,              \
                                           MPI_Datatype type, void *in, N m, MPI_Datatype in_type, \
                                           int root, MPI_Comm comm),                               \
               (data, n, at, type, in, m, in_type, root, comm),                                    \
               if (c.me == root) {                                                                 \
                   struct blocks b = BLOCKS(n, NULL, type);                                        \
                   numaloc_model_alltoallv(&c, block, &b);                                         \
               })                                                                                  \
    COLLECTIVE(Allgather##_, Iallgather##_, (const void *data, N n, MPI_Datatype type, void *in, N m, \
                                             MPI_Datatype in_type, MPI_Comm comm),                 \
               (data, n, type, in, m, in_type, comm), numaloc_model_allgather(&c, size_of(m, in_type))) \
    COLLECTIVE(Allgatherv##_, Iallgatherv##_, (const void *data, N n, MPI_Datatype type, void *in, \
                                               const N *m, const D *at, MPI_Datatype in_type,      \
                                               MPI_Comm comm),                                     \
               (data, n, type, in, m, at, in_type, comm),                                          \
               { struct blocks b = BLOCKS(m, NULL, in_type); numaloc_model_allgatherv(&c, block, &b); }) \
    COLLECTIVE(Alltoall##_, Ialltoall##_, (const void *data, N n, MPI_Datatype type, void *in, N m, \
                                           MPI_Datatype in_type, MPI_Comm comm),                   \
               (data, n, type, in, m, in_type, comm), numaloc_model_alltoall(&c, size_of(m, in_type))) \
    COLLECTIVE(Alltoallv##_, Ialltoallv##_, (const void *data, const N *n, const D *at,            \
                                             MPI_Datatype type, void *in, const N *m,              \
                                             const D *in_at, MPI_Datatype in_type, MPI_Comm comm), \
               (data, n, at, type, in, m, in_at, in_type, comm),                                   \
               { struct blocks b = data == MPI_IN_PLACE ? BLOCKS(m, NULL, in_type) : BLOCKS(n, NULL, type); \
                 numaloc_model_alltoallv(&c, block, &b); })                                        \
    COLLECTIVE(Alltoallw##_, Ialltoallw##_, (const void *data, const N *n, const D *at,            \
                                             const MPI_Datatype *type, void *in, const N *m,       \
                                             const D *in_at, const MPI_Datatype *in_type, MPI_Comm comm), \
               (data, n, at, type, in, m, in_at, in_type, comm),                                   \
               { struct blocks b = data == MPI_IN_PLACE ? BLOCKS(m, in_type, 0) : BLOCKS(n, type, 0); \
                 numaloc_model_alltoallv(&c, block, &b); })                                        \
    COLLECTIVE(Neighbor_allgather##_, Ineighbor_allgather##_,                                      \
               (const void *data, N n, MPI_Datatype type, void *in, N m, MPI_Datatype in_type, MPI_Comm comm), \
               (data, n, type, in, m, in_type, comm),                                              \
               { uint64_t each = size_of(n, type); to_neighbours(comm, &c, equal, &each); })       \
    COLLECTIVE(Neighbor_allgatherv##_, Ineighbor_allgatherv##_,                                    \
               (const void *data, N n, MPI_Datatype type, void *in, const N *m, const D *at,       \
                MPI_Datatype in_type, MPI_Comm comm),                                              \
               (data, n, type, in, m, at, in_type, comm),                                          \
               { uint64_t each = size_of(n, type); to_neighbours(comm, &c, equal, &each); })       \
    COLLECTIVE(Neighbor_alltoall##_, Ineighbor_alltoall##_,                                        \
               (const void *data, N n, MPI_Datatype type, void *in, N m, MPI_Datatype in_type, MPI_Comm comm), \
               (data, n, type, in, m, in_type, comm),                                              \
               { uint64_t each = size_of(n, type); to_neighbours(comm, &c, equal, &each); })       \
    COLLECTIVE(Neighbor_alltoallv##_, Ineighbor_alltoallv##_,                                      \
               (const void *data, const N *n, const D *at, MPI_Datatype type, void *in, const N *m, \
                const D *in_at, MPI_Datatype in_type, MPI_Comm comm),                              \
               (data, n, at, type, in, m, in_at, in_type, comm),                                   \
               { struct blocks b = BLOCKS(n, NULL, type); to_neighbours(comm, &c, block, &b); })   \
    COLLECTIVE(Neighbor_alltoallw##_, Ineighbor_alltoallw##_,                                      \
               (const void *data, const N *n, const MPI_Aint *at, const MPI_Datatype *type, void *in, \
                const N *m, const MPI_Aint *in_at, const MPI_Datatype *in_type, MPI_Comm comm),    \
               (data, n, at, type, in, m, in_at, in_type, comm),                                   \
               { struct blocks b = BLOCKS(n, type, 0); to_neighbours(comm, &c, block, &b); })

COUNTED(int, int, )
COUNTED(MPI_Count, MPI_Aint, _c)

/* ---- beginning and end: Fortran calls these by their PMPI names ---- */

#define NEXT(name, parameters)                                                                     \
    static int(*_Atomic next) parameters;                                                          \
    if (next == NULL) next = (int(*) parameters)dlsym(RTLD_NEXT, #name);                           \
    if (next == NULL) return 15 /* MPI_ERR_OTHER: the library has no such function */

#define BEGIN_AND_END(prefix)                                                                      \
    EXPORT int prefix##_Init(int *argc, char ***argv);                                             \
    int prefix##_Init(int *argc, char ***argv) {                                                   \
        NEXT(prefix##_Init, (int *, char ***));                                                    \
        int status = next(argc, argv);                                                             \
        if (status == 0) ready();                                                                  \
        return status;                                                                             \
    }                                                                                              \
    EXPORT int prefix##_Init_thread(int *argc, char ***argv, int required, int *provided);         \
    int prefix##_Init_thread(int *argc, char ***argv, int required, int *provided) {               \
        NEXT(prefix##_Init_thread, (int *, char ***, int, int *));                                 \
        int status = next(argc, argv, required, provided);                                         \
        if (status == 0) ready();                                                                  \
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
