/* Open MPI's monitoring layer does not see the program's persistent sends: MPI_Start calls the request's
 * own start function and bypasses it. So these few functions are wrapped: the *_init calls note what a
 * request will send and where, MPI_Start and MPI_Startall count it.
 *
 * Open MPI's Fortran bindings (mpif.h, mpi, mpi_f08) call PMPI_Start and so on in the C library, C
 * programs call MPI_Start: both names are wrapped, and a call inside a wrapped call is not counted again.
 * Handles are pointers in this library, so no header is needed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "rank_file.h"

#define EXPORT __attribute__((visibility("default")))
#define BUCKETS 1024u

typedef void *handle;

struct request {
    struct request *next;
    handle request;
    uint64_t bytes;
    int peer;
};

static struct request *known[BUCKETS]; /* one node per live persistent send request of the program */
static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;
static __thread int depth __attribute__((tls_model("initial-exec")));

static struct request **bucket(handle request) {
    return &known[((uintptr_t)request >> 4) * 2654435761u >> 7 & (BUCKETS - 1)];
}

/* `rank` of `comm` (of its remote group, for an inter-communicator) in MPI_COMM_WORLD; negative: none. */
static int world_rank(handle comm, int rank) {
    int (*test_inter)(handle, int *) = dlsym(RTLD_DEFAULT, "PMPI_Comm_test_inter");
    int (*group_of)(handle, handle *) = dlsym(RTLD_DEFAULT, "PMPI_Comm_group");
    int (*remote_group_of)(handle, handle *) = dlsym(RTLD_DEFAULT, "PMPI_Comm_remote_group");
    int (*translate)(handle, int, const int *, handle, int *) =
        dlsym(RTLD_DEFAULT, "PMPI_Group_translate_ranks");
    int (*free_group)(handle *) = dlsym(RTLD_DEFAULT, "PMPI_Group_free");
    handle world = dlsym(RTLD_DEFAULT, "ompi_mpi_comm_world");
    if (!test_inter || !group_of || !remote_group_of || !translate || !free_group || !world || rank < 0)
        return -1;
    int inter = 0, found = -1;
    handle group, world_group;
    if (test_inter(comm, &inter) != 0) return -1;
    if ((inter ? remote_group_of : group_of)(comm, &group) != 0) return -1;
    if (group_of(world, &world_group) == 0) {
        if (translate(group, 1, &rank, world_group, &found) != 0) found = -1;
        free_group(&world_group);
    }
    free_group(&group);
    return found;
}

static void note(handle request, int count, handle type, int rank, handle comm) {
    int (*type_size)(handle, int *) = dlsym(RTLD_DEFAULT, "PMPI_Type_size");
    int size = 0;
    if (!numaloc_rank_is_open() || !type_size || type_size(type, &size) != 0) return;
    int peer = world_rank(comm, rank);
    struct request *node = peer >= 0 ? malloc(sizeof *node) : NULL;
    if (node == NULL) return;
    pthread_mutex_lock(&known_lock);
    struct request **head = bucket(request);
    *node = (struct request){*head, request, (uint64_t)count * (uint64_t)size, peer};
    *head = node;
    pthread_mutex_unlock(&known_lock);
}

static void forget(handle request) {
    pthread_mutex_lock(&known_lock);
    for (struct request **at = bucket(request); *at; at = &(*at)->next)
        if ((*at)->request == request) {
            struct request *gone = *at;
            *at = gone->next;
            free(gone);
            break;
        }
    pthread_mutex_unlock(&known_lock);
}

static void count(int requests, const handle *request) {
    for (int i = 0; i < requests; i++) {
        int peer = -1;
        uint64_t bytes = 0;
        pthread_mutex_lock(&known_lock);
        for (struct request *at = *bucket(request[i]); at; at = at->next)
            if (at->request == request[i]) {
                peer = at->peer;
                bytes = at->bytes;
                break;
            }
        pthread_mutex_unlock(&known_lock);
        if (peer >= 0) numaloc_rank_message(peer, bytes, NUMALOC_PERSISTENT);
    }
}

#define NEXT(name, parameters)                                                                     \
    static int(*_Atomic next) parameters;                                                          \
    if (next == NULL) next = (int(*) parameters)dlsym(RTLD_NEXT, #name);                           \
    if (next == NULL) return 16 /* MPI_ERR_OTHER: the library has no such function */

#define WRAP_INIT(name)                                                                            \
    EXPORT int name(const void *data, int n, handle type, int rank, int tag, handle comm,          \
                    handle *request);                                                              \
    int name(const void *data, int n, handle type, int rank, int tag, handle comm,                 \
             handle *request) {                                                                    \
        NEXT(name, (const void *, int, handle, int, int, handle, handle *));                       \
        depth++;                                                                                   \
        int status = next(data, n, type, rank, tag, comm, request);                                \
        if (--depth == 0 && status == 0) note(*request, n, type, rank, comm);                      \
        return status;                                                                             \
    }

#define WRAP_START(prefix)                                                                         \
    EXPORT int prefix##_Start(handle *request);                                                    \
    int prefix##_Start(handle *request) {                                                          \
        NEXT(prefix##_Start, (handle *));                                                          \
        if (depth++ == 0) count(1, request);                                                       \
        int status = next(request);                                                                \
        depth--;                                                                                   \
        return status;                                                                             \
    }                                                                                              \
    EXPORT int prefix##_Startall(int n, handle *requests);                                         \
    int prefix##_Startall(int n, handle *requests) {                                               \
        NEXT(prefix##_Startall, (int, handle *));                                                  \
        if (depth++ == 0) count(n, requests);                                                      \
        int status = next(n, requests);                                                            \
        depth--;                                                                                   \
        return status;                                                                             \
    }                                                                                              \
    EXPORT int prefix##_Request_free(handle *request);                                             \
    int prefix##_Request_free(handle *request) {                                                   \
        NEXT(prefix##_Request_free, (handle *));                                                   \
        forget(*request);                                                                          \
        return next(request);                                                                      \
    }

WRAP_INIT(MPI_Send_init)
WRAP_INIT(MPI_Bsend_init)
WRAP_INIT(MPI_Rsend_init)
WRAP_INIT(MPI_Ssend_init)
WRAP_INIT(PMPI_Send_init)
WRAP_INIT(PMPI_Bsend_init)
WRAP_INIT(PMPI_Rsend_init)
WRAP_INIT(PMPI_Ssend_init)
WRAP_START(MPI)
WRAP_START(PMPI)
