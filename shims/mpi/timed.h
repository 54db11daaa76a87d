/* Wrappers of calls that send nothing and are only timed: receives, requests, and others that may take long. Part of
 * profiling.c. */

/* Receives and probes. */
#define RECEIVE(name, count_t)                                                                     \
    BOTH_NAMES(WRAP_IN, name, (void *data, count_t n, MPI_Datatype type, int from, int tag, MPI_Comm comm, \
                               MPI_Status *status),                                                \
               (data, n, type, from, tag, comm, asked), from, tag, {                               \
        time_call(&call, comm, size_of(n, type));                                                  \
        note_received(&call, NUMALOC_RECEIVE, comm, from, tag, asked, call.begin, 1);              \
    }, (void)0)
#define IRECEIVE(name, count_t)                                                                    \
    TIMED(name, (void *data, count_t n, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request), \
          (data, n, type, from, tag, comm, request), {                                             \
        time_call(&call, comm, size_of(n, type));                                                  \
        note_posted(&call, comm, from, tag, *request);                                             \
    })
#define RECEIVE_INIT(name, count_t)                                                                \
    BOTH_NAMES(WRAP_INIT, name, (void *data, count_t n, MPI_Datatype type, int from, int tag, MPI_Comm comm, \
                                 MPI_Request *request),                                            \
               (data, n, type, from, tag, comm, request), prepared(*request, comm, from, tag, 0, 1))
BOTH(RECEIVE, Recv) BOTH(IRECEIVE, Irecv) BOTH(RECEIVE_INIT, Recv_init)

#define PROBED(kind, found)                                                                        \
    {                                                                                              \
        time_call(&call, comm, 0);                                                                 \
        if (found) note_received(&call, kind, comm, from, tag, asked, call.begin, kind##_WAITS);   \
    }
#define NUMALOC_PROBE_WAITS 1
#define NUMALOC_RECEIVE_WAITS 1
/* A matched probe takes the message: what receives it later is only timed. */
BOTH_NAMES(WRAP_IN, Probe, (int from, int tag, MPI_Comm comm, MPI_Status *status), (from, tag, comm, asked), from, tag,
           PROBED(NUMALOC_PROBE, 1), (void)0)
BOTH_NAMES(WRAP_IN, Mprobe, (int from, int tag, MPI_Comm comm, MPI_Message *message, MPI_Status *status),
           (from, tag, comm, message, asked), from, tag, PROBED(NUMALOC_RECEIVE, 1), (void)0)
BOTH_NAMES(WRAP_IN, Improbe, (int from, int tag, MPI_Comm comm, int *flag, MPI_Message *message, MPI_Status *status),
           (from, tag, comm, flag, message, asked), from, tag, PROBED(NUMALOC_RECEIVE, *flag), (void)0)
TIMED(Iprobe, (int from, int tag, MPI_Comm comm, int *flag, MPI_Status *status), (from, tag, comm, flag, status),
      time_call(&call, comm, 0))
#define MATCHED(name, count_t)                                                                     \
    TIMED(name, (void *data, count_t n, MPI_Datatype type, MPI_Message *message, MPI_Status *status), \
          (data, n, type, message, status), numaloc_time_add(&call, 0, size_of(n, type)))
BOTH(MATCHED, Mrecv)

/* Ends of requests; NUMBER and INDICES: how many ended, and which. */
#define ENDED(name, parameters, n, all, statuses, arguments, waited, number, indices)              \
    EXPORT int name parameters;                                                                    \
    int name parameters {                                                                          \
        NEXT(name, parameters);                                                                    \
        ENTER(name);                                                                               \
        struct handles held;                                                                       \
        held.status = statuses;                                                                    \
        if (outer) hold(&held, n, all, statuses);                                                  \
        STAMP(name);                                                                               \
        int result = next arguments;                                                               \
        LEAVE(time_ended(&call, &held, result == 0 ? (number) : 0, indices, waited));              \
        if (outer) release(&held);                                                                 \
        return result;                                                                             \
    }
BOTH_NAMES(ENDED, Wait, (MPI_Request *request, MPI_Status *status), 1, request, status, (request, held.status), 1, 1, NULL)
BOTH_NAMES(ENDED, Waitall, (int n, MPI_Request *all, MPI_Status *statuses), n, all, statuses, (n, all, held.status), 1, n,
           NULL)
BOTH_NAMES(ENDED, Waitany, (int n, MPI_Request *all, int *index, MPI_Status *status), n, all, status,
           (n, all, index, held.status), 1, *index >= 0, index)
BOTH_NAMES(ENDED, Waitsome, (int n, MPI_Request *all, int *ended, int *indices, MPI_Status *statuses), n, all, statuses,
           (n, all, ended, indices, held.status), 1, *ended > 0 ? *ended : 0, indices)
BOTH_NAMES(ENDED, Test, (MPI_Request *request, int *flag, MPI_Status *status), 1, request, status,
           (request, flag, held.status), 0, *flag != 0, NULL)
BOTH_NAMES(ENDED, Testall, (int n, MPI_Request *all, int *flag, MPI_Status *statuses), n, all, statuses,
           (n, all, flag, held.status), 0, *flag ? n : 0, NULL)
BOTH_NAMES(ENDED, Testany, (int n, MPI_Request *all, int *index, int *flag, MPI_Status *status), n, all, status,
           (n, all, index, flag, held.status), 0, *flag && *index >= 0, index)
BOTH_NAMES(ENDED, Testsome, (int n, MPI_Request *all, int *ended, int *indices, MPI_Status *statuses), n, all, statuses,
           (n, all, ended, indices, held.status), 0, *ended > 0 ? *ended : 0, indices)

/* New communicators: all ranks create those of the same ranks in the same order, and wait for each other. */
#define MAKES(name, parameters, arguments)                                                         \
    TIMED(name, (MPI_Comm comm, UNPACK parameters, MPI_Comm *made), (comm, UNPACK arguments, made), { \
        time_collective(&call, comm, ALL, NULL, 0);                                                \
        if (result == 0 && *made != no_comm) (void)comm_of(*made);                                 \
    })
TIMED(Comm_dup, (MPI_Comm comm, MPI_Comm *made), (comm, made), {
    time_collective(&call, comm, ALL, NULL, 0);
    if (result == 0 && *made != no_comm) (void)comm_of(*made);
})
MAKES(Comm_dup_with_info, (MPI_Info info), (info))
MAKES(Comm_create, (MPI_Group group), (group))
MAKES(Comm_split, (int colour, int key), (colour, key))
MAKES(Comm_split_type, (int type, int key, MPI_Info info), (type, key, info))
MAKES(Cart_create, (int n, const int *dims, const int *periods, int reorder), (n, dims, periods, reorder))
MAKES(Cart_sub, (const int *dims), (dims))
MAKES(Graph_create, (int n, const int *index, const int *edges, int reorder), (n, index, edges, reorder))
MAKES(Dist_graph_create, (int n, const int *from, const int *degrees, const int *to, const int *weights, MPI_Info info,
                          int reorder), (n, from, degrees, to, weights, info, reorder))
MAKES(Dist_graph_create_adjacent, (int in, const int *from, const int *in_weights, int out, const int *to,
                                   const int *weights, MPI_Info info, int reorder),
      (in, from, in_weights, out, to, weights, info, reorder))
MAKES(Intercomm_merge, (int high), (high))

/* One-sided synchronisation and files. */
#define WINDOW(name, parameters, arguments) TIMED(name, parameters, arguments, numaloc_time_add(&call, 0, 0))
WINDOW(Win_fence, (int assertion, MPI_Win win), (assertion, win))
WINDOW(Win_start, (MPI_Group group, int assertion, MPI_Win win), (group, assertion, win))
WINDOW(Win_post, (MPI_Group group, int assertion, MPI_Win win), (group, assertion, win))
WINDOW(Win_complete, (MPI_Win win), (win))
WINDOW(Win_wait, (MPI_Win win), (win))
WINDOW(Win_lock, (int type, int rank, int assertion, MPI_Win win), (type, rank, assertion, win))
WINDOW(Win_lock_all, (int assertion, MPI_Win win), (assertion, win))
WINDOW(Win_unlock, (int rank, MPI_Win win), (rank, win))
WINDOW(Win_unlock_all, (MPI_Win win), (win))
WINDOW(Win_flush, (int rank, MPI_Win win), (rank, win))
WINDOW(Win_flush_all, (MPI_Win win), (win))
#define FILE_AT(name, constant)                                                                    \
    TIMED(name, (MPI_File file, MPI_Offset at, constant void *data, int n, MPI_Datatype type, MPI_Status *status), \
          (file, at, data, n, type, status), numaloc_time_add(&call, 0, size_of(n, type)))
#define FILE_NEXT(name, constant)                                                                  \
    TIMED(name, (MPI_File file, constant void *data, int n, MPI_Datatype type, MPI_Status *status), \
          (file, data, n, type, status), numaloc_time_add(&call, 0, size_of(n, type)))
FILE_AT(File_read_at, ) FILE_AT(File_read_at_all, ) FILE_AT(File_write_at, const) FILE_AT(File_write_at_all, const)
FILE_NEXT(File_read, ) FILE_NEXT(File_read_all, ) FILE_NEXT(File_write, const) FILE_NEXT(File_write_all, const)
