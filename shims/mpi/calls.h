/* What is noted of a call that has ended (timing.h). Part of profiling.c. Call with the lock of timing.h, and of
 * operations in the order in which MPI matches them: the k-th message that was sent in a channel (sender, receiver,
 * communicator, tag) is the k-th that was received. */

/* ---- communicators by names that all their ranks know ---- */

struct comm {
    handle handle; /* 0: free */
    uint64_t key;  /* 0: not known */
    int inter, me, size, all, *world; /* size: of the group that is sent to; NULL: ranks of MPI_COMM_WORLD */
    uint32_t collectives;
};
#define COMMS 512u
#define COMM_PROBES 16u
#define GROUPS 1024u
static struct comm comms[COMMS], *last_comm;
/* Communicators of the same ranks are distinguished by their number, in the order of their creation. */
static struct {
    uint64_t ranks;
    uint32_t created;
} groups[GROUPS];

static uint64_t hash_of_ranks(const int *world, int size, int *foreign) {
    uint64_t sum = (uint64_t)size + 1;
    for (int i = 0; i < size; i++) {
        int rank = world ? world[i] : i;
        *foreign |= rank < 0;
        sum = (sum ^ (uint64_t)(uint32_t)rank) * 0x100000001b3u;
        sum ^= sum >> 29;
    }
    return sum * 0x9e3779b97f4a7c15u;
}

static uint64_t named(uint64_t ranks) {
    for (uint32_t probe = 0; probe < COMM_PROBES; probe++) {
        __typeof__(&groups[0]) at = &groups[(ranks + probe) & (GROUPS - 1)];
        if (at->ranks != 0 && at->ranks != ranks) continue;
        at->ranks = ranks;
        return (ranks ^ ++at->created) | 1;
    }
    return 0;
}

static struct comm *know_comm(MPI_Comm comm) {
    struct comm *free_one = NULL;
    for (uint32_t probe = 0; probe < COMM_PROBES; probe++) {
        struct comm *at = &comms[(hash((handle)comm) + probe) & (COMMS - 1)];
        if (at->handle == 0 && free_one == NULL) free_one = at;
        if (at->handle == (handle)comm) return at;
    }
    MPI_Group group;
    int inter = 0, me = -1, size = 0, foreign = 0;
    if (free_one == NULL || mpi.Comm_test_inter(comm, &inter) != 0) return NULL;
    mpi.Comm_rank(comm, &me);
    int *world = NULL, all;
    if (comm == world_comm) mpi.Comm_size(comm, &size);
    else if (mpi.Comm_group(comm, &group) != 0 || (world = in_world(group, &size)) == NULL) return NULL;
    uint64_t ranks = hash_of_ranks(world, size, &foreign);
    all = size;
    if (inter) {
        int *remote;
        if (mpi.Comm_remote_group(comm, &group) != 0 || (remote = in_world(group, &size)) == NULL) {
            free(world);
            return NULL;
        }
        free(world);
        world = remote;
        ranks += hash_of_ranks(world, size, &foreign);
        all += size;
    }
    *free_one = (struct comm){(handle)comm, foreign ? 0 : named(ranks), inter, me, size, all, world, 0};
    return free_one;
}

/* The communicator of a handle; NULL if it cannot be determined. */
static struct comm *comm_of(MPI_Comm comm) {
    if (last_comm == NULL || last_comm->handle != (handle)comm) last_comm = know_comm(comm);
    return last_comm;
}

static void forget_comm(MPI_Comm comm) {
    numaloc_time_lock();
    for (uint32_t probe = 0; probe < COMM_PROBES; probe++) {
        struct comm *at = &comms[(hash((handle)comm) + probe) & (COMMS - 1)];
        if (at->handle != (handle)comm) continue;
        free(at->world);
        *at = (struct comm){0};
    }
    numaloc_time_unlock();
}

/* ---- messages ---- */

/* The rank in MPI_COMM_WORLD; -1: none, or no way to look for a partner. */
static int peer_of(const struct comm *k, int rank) {
    if (k == NULL || k->key == 0 || rank < 0 || rank >= k->size) return -1;
    return k->world ? k->world[rank] : rank;
}

static void time_call(struct numaloc_call *call, MPI_Comm comm, uint64_t bytes) {
    struct comm *k = comm_of(comm);
    numaloc_time_add(call, k ? (uint32_t)k->all : 0, bytes);
}

static void note_sent(const struct numaloc_call *call, MPI_Comm comm, int rank, int tag, const MPI_Request *request) {
    const struct comm *k = comm_of(comm);
    int peer = peer_of(k, rank);
    if (peer < 0) return;
    uint64_t channel = numaloc_time_channel(k->key, my_rank, peer, tag);
    uint32_t sequence = numaloc_time_next_sent(channel);
    numaloc_time_event(call, NUMALOC_SEND, channel, sequence, peer, call->begin, request == NULL);
    if (request == NULL) return;
    struct numaloc_message message = {.channel = channel, .posted = call->begin, .sequence = sequence,
                                      .peer = peer, .kind = NUMALOC_SEND};
    numaloc_time_pend((handle)*request, &message);
}

static int is_open(int from, int tag) { return from == MPI_ANY_SOURCE || tag == MPI_ANY_TAG; }

/* A message was received from, or found at, a rank; `status` is used if source or tag were not named. */
static void note_received(const struct numaloc_call *call, enum numaloc_event kind, MPI_Comm comm, int from, int tag,
                          const MPI_Status *status, uint64_t posted, int waited) {
    if (is_open(from, tag)) {
        if (status == MPI_STATUS_IGNORE) return;
        from = status->MPI_SOURCE;
        tag = status->MPI_TAG;
    }
    const struct comm *k = comm_of(comm);
    int peer = peer_of(k, from);
    if (peer < 0) return;
    uint64_t channel = numaloc_time_channel(k->key, peer, my_rank, tag);
    uint32_t sequence = numaloc_time_next_received(channel, kind == NUMALOC_PROBE);
    numaloc_time_event(call, kind, channel, sequence, peer, posted, waited);
}

/* A receive was posted that a request stands for. */
static void note_posted(const struct numaloc_call *call, MPI_Comm comm, int from, int tag, MPI_Request request) {
    struct numaloc_message message = {.posted = call->begin, .from = from, .tag = tag, .comm = (handle)comm,
                                      .kind = NUMALOC_RECEIVE, .open = (uint8_t)is_open(from, tag)};
    if (!message.open) {
        const struct comm *k = comm_of(comm);
        message.peer = peer_of(k, from);
        if (message.peer < 0) return;
        message.channel = numaloc_time_channel(k->key, message.peer, my_rank, tag);
        message.sequence = numaloc_time_next_received(message.channel, 0);
    }
    numaloc_time_pend((handle)request, &message);
}

static void time_send(struct numaloc_call *call, MPI_Comm comm, int rank, int tag, uint64_t bytes,
                      const MPI_Request *request) {
    time_call(call, comm, bytes);
    note_sent(call, comm, rank, tag, request);
}

static void time_exchange(struct numaloc_call *call, MPI_Comm comm, int rank, int tag, int from, int in_tag,
                          uint64_t bytes, const MPI_Status *status) {
    time_call(call, comm, bytes);
    note_sent(call, comm, rank, tag, NULL);
    note_received(call, NUMALOC_RECEIVE, comm, from, in_tag, status, call->begin, 1);
}

static void time_start(struct numaloc_call *call, int n, const MPI_Request *request) {
    numaloc_time_add(call, 0, 0);
    for (int i = 0; i < n; i++) {
        struct request found = persistent(request[i]);
        if (found.tag == NO_TAG) continue;
        if (found.is_receive) note_posted(call, found.comm, found.rank, found.tag, request[i]);
        else note_sent(call, found.comm, found.rank, found.tag, &request[i]);
    }
}

/* `root`: the rank that releases the others; negative: all ranks wait for all. */
static void time_collective(struct numaloc_call *call, MPI_Comm comm, int root, const MPI_Request *request,
                            uint64_t bytes) {
    struct comm *k = comm_of(comm);
    numaloc_time_add(call, k ? (uint32_t)k->all : 0, bytes);
    if (k == NULL || k->key == 0 || k->all < 2) return;
    uint32_t sequence = k->collectives++;
    int peer = k->inter ? -1 : peer_of(k, root);
    if (request == NULL) {
        numaloc_time_event(call, NUMALOC_COLLECTIVE_CALL, k->key, sequence, peer, call->begin, 1);
        return;
    }
    struct numaloc_message message = {.channel = k->key, .posted = call->begin, .sequence = sequence, .peer = peer,
                                      .kind = NUMALOC_COLLECTIVE_CALL};
    numaloc_time_pend((handle)*request, &message);
}

/* A request has ended in this call, which waited for it or not. Waits of less than this many ticks (about 1 us) for the
 * end of a send are no waits. */
#define SHORT_TICKS 3000u
static void note_ended(const struct numaloc_call *call, handle request, const MPI_Status *status, int waited) {
    struct numaloc_message message = numaloc_time_take(request);
    switch (message.kind) {
    case NUMALOC_SEND:
        if (waited && call->end - call->begin > SHORT_TICKS)
            numaloc_time_event(call, NUMALOC_SEND_WAIT, message.channel, message.sequence, message.peer, message.posted, 1);
        break;
    case NUMALOC_RECEIVE:
        if (message.open)
            note_received(call, NUMALOC_RECEIVE, (MPI_Comm)message.comm, message.from, message.tag, status, message.posted,
                          waited);
        else
            numaloc_time_event(call, NUMALOC_RECEIVE, message.channel, message.sequence, message.peer, message.posted,
                               waited);
        break;
    case NUMALOC_COLLECTIVE_CALL:
        numaloc_time_event(call, NUMALOC_COLLECTIVE_CALL, message.channel, message.sequence, message.peer,
                           message.posted, waited);
        break;
    }
}

static void forget_request(MPI_Request request) {
    numaloc_time_lock();
    (void)numaloc_time_take((handle)request);
    numaloc_time_unlock();
}

/* ---- requests of a call, which overwrites their handles ---- */

#define FEW 64
struct handles {
    handle few[FEW], *all;
    MPI_Status own[FEW / 4], *status; /* what the call fills in */
    int is_own;
};

static void hold(struct handles *h, int n, const MPI_Request *all, MPI_Status *status) {
    h->all = n <= FEW ? h->few : malloc(sizeof(handle) * (size_t)n);
    h->status = status;
    h->is_own = 0;
    for (int i = 0; i < n && h->all != NULL; i++) h->all[i] = (handle)all[i];
    if (status != MPI_STATUSES_IGNORE || !numaloc_time_any_open()) return;
    MPI_Status *own = n <= FEW / 4 ? h->own : malloc(sizeof(MPI_Status) * (size_t)n);
    if (own == NULL) return;
    h->status = own;
    h->is_own = 1;
}

static void release(struct handles *h) {
    if (h->all != h->few) free(h->all);
    if (h->is_own && h->status != h->own) free(h->status);
}

/* `n` requests have ended: those at `indices`, or the first ones. */
static void time_ended(struct numaloc_call *call, const struct handles *h, int n, const int *indices, int waited) {
    numaloc_time_add(call, 0, 0);
    for (int i = 0; i < n && h->all != NULL; i++) {
        const MPI_Status *status = h->status == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : &h->status[i];
        note_ended(call, h->all[indices ? indices[i] : i], status, waited);
    }
}

/* Where the library writes the status of a receive: to ours if it is needed and the program gives none. */
static MPI_Status *in_status(MPI_Status *own, int from, int tag, MPI_Status *status) {
    return status == MPI_STATUS_IGNORE && is_open(from, tag) ? own : status;
}
