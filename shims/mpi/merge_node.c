/* The MPI side of a process that merges or gathers rank files: numaloc-merge-NODE PROGRAM ARGUMENTS...
 *
 * Starts PROGRAM, which does the work, and carries its messages: PROGRAM writes requests to its standard output and
 * reads answers from its standard input. So the program needs no MPI library, and one binary serves all of them.
 * Compiled for each binary interface, like the preload libraries; it links no MPI library and loads the one that the
 * launcher's environment provides.
 *
 * If PROGRAM ends without having finished, this process calls MPI_Abort, so that the others end too. If this process
 * ends, PROGRAM reads the end of its input.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef NUMALOC_CHECK_AGAINST_MPI_H
#include <mpi.h>
#elif defined NUMALOC_FOR_OPEN_MPI
typedef struct ompi_communicator_t *MPI_Comm;
typedef struct ompi_datatype_t *MPI_Datatype;
typedef struct ompi_request_t *MPI_Request;
typedef struct ompi_status_public_t MPI_Status; /* only ignored */
#define MPI_STATUS_IGNORE ((MPI_Status *)0)
#else
typedef int MPI_Comm, MPI_Datatype, MPI_Request;
typedef struct MPI_Status MPI_Status; /* only ignored */
#define MPI_COMM_WORLD ((MPI_Comm)0x44000000)
#define MPI_BYTE ((MPI_Datatype)0x4c00010d)
#define MPI_STATUS_IGNORE ((MPI_Status *)1)
#endif

#define FUNCTIONS(F)                                                                               \
    F(Init, (int *, char ***))                                                                     \
    F(Comm_rank, (MPI_Comm, int *))                                                                \
    F(Comm_size, (MPI_Comm, int *))                                                                \
    F(Isend, (const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *))                 \
    F(Irecv, (void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *))                       \
    F(Test, (MPI_Request *, int *, MPI_Status *))                                                  \
    F(Abort, (MPI_Comm, int))                                                                      \
    F(Finalize, (void))
#define MEMBER(name, parameters) int(*name) parameters;
static struct { FUNCTIONS(MEMBER) } mpi;
static MPI_Comm world;
static MPI_Datatype byte;

#ifdef NUMALOC_CHECK_AGAINST_MPI_H
#define SAME(name, parameters) int(*const check_##name) parameters = MPI_##name;
FUNCTIONS(SAME)
#endif

enum request { SEND = 1, RECEIVE = 2, FINISH = 3 };
enum tag { LENGTH = 1, CONTENT = 2 };
struct frame { /* as in crates/mpi/src/peers.rs */
    uint32_t request, peer;
    uint64_t length;
};
#define MOST (1u << 30) /* bytes of a message, so that they are an `int` */

static int fail(const char *what, const char *why) {
    fprintf(stderr, "numaloc merge: %s: %s\n", what, why);
    return 1;
}

static int find_library(void) {
#ifdef NUMALOC_FOR_OPEN_MPI
    static const char *const names[] = {"libmpi.so.40", "libmpi.so.80", "libmpi.so"};
#else
    static const char *const names[] = {"libmpich.so.12", "libmpi.so.12", "libmpi_cray.so.12", "libmpich.so"};
#endif
    void *library = NULL;
    for (unsigned i = 0; i < sizeof names / sizeof *names && library == NULL; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_GLOBAL);
    if (library == NULL) return fail("cannot load the MPI library", dlerror());
#define FIND(name, parameters)                                                                     \
    if ((mpi.name = (int(*) parameters)dlsym(library, "MPI_" #name)) == NULL)                      \
        return fail("the MPI library lacks a function", "MPI_" #name);
    FUNCTIONS(FIND)
#if defined NUMALOC_FOR_OPEN_MPI && !defined NUMALOC_CHECK_AGAINST_MPI_H
    world = (MPI_Comm)dlsym(library, "ompi_mpi_comm_world");
    byte = (MPI_Datatype)dlsym(library, "ompi_mpi_byte");
    if (world == NULL || byte == NULL) return fail("the MPI library lacks a variable", "ompi_mpi_byte");
#else
    world = MPI_COMM_WORLD;
    byte = MPI_BYTE;
#endif
    return 0;
}

/* Waits without keeping the processor from the program, whose reading may last minutes. */
static void finish(MPI_Request *request) {
    for (long pause = 10000;; pause = pause < 2000000 ? 2 * pause : pause) {
        int done = 0;
        mpi.Test(request, &done, MPI_STATUS_IGNORE);
        if (done) return;
        nanosleep(&(struct timespec){0, pause}, NULL);
    }
}

static void send(const void *bytes, size_t length, int peer, int tag) {
    MPI_Request request;
    mpi.Isend(bytes, (int)length, byte, peer, tag, world, &request);
    finish(&request);
}

static void receive(void *bytes, size_t length, int peer, int tag) {
    MPI_Request request;
    mpi.Irecv(bytes, (int)length, byte, peer, tag, world, &request);
    finish(&request);
}

/* 0 if all was read. */
static int read_all(int from, void *to, size_t length) {
    for (char *at = to; length > 0;) {
        ssize_t count = read(from, at, length);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return -1;
        at += count;
        length -= (size_t)count;
    }
    return 0;
}

static int write_all(int to, const void *from, size_t length) {
    for (const char *at = from; length > 0;) {
        ssize_t count = write(to, at, length);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return -1;
        at += count;
        length -= (size_t)count;
    }
    return 0;
}

/* Room for the largest message so far. */
static void *room(uint64_t length) {
    static void *bytes;
    static uint64_t size;
    if (length > size) {
        free(bytes);
        bytes = malloc(length);
        size = bytes == NULL ? 0 : length;
    }
    return length > MOST ? NULL : bytes;
}

/* Carries messages until the program has finished: 0, or ends early: 1. */
static int carry(int from_program, int to_program) {
    for (;;) {
        struct frame frame;
        if (read_all(from_program, &frame, sizeof frame) != 0) return 1;
        if (frame.request == FINISH) return 0;
        if (frame.request == SEND) {
            void *bytes = room(frame.length + 1);
            if (bytes == NULL || read_all(from_program, bytes, frame.length) != 0) return 1;
            send(&frame.length, sizeof frame.length, (int)frame.peer, LENGTH);
            send(bytes, frame.length, (int)frame.peer, CONTENT);
        } else {
            uint64_t length;
            receive(&length, sizeof length, (int)frame.peer, LENGTH);
            void *bytes = room(length + 1);
            if (bytes == NULL) return 1;
            receive(bytes, length, (int)frame.peer, CONTENT);
            if (write_all(to_program, &length, sizeof length) != 0) return 1;
            if (write_all(to_program, bytes, length) != 0) return 1;
        }
    }
}

int main(int argc, char **argv) {
    int to[2], from[2];
    if (argc < 2) return fail("usage", "numaloc-merge-NODE PROGRAM ARGUMENTS...");
    if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) return fail("cannot make a pipe", strerror(errno));
    signal(SIGPIPE, SIG_IGN);
    /* Before MPI starts: afterwards a fork may disturb its transports. */
    pid_t program = fork();
    if (program < 0) return fail("cannot start a process", strerror(errno));
    if (program == 0) {
        dup2(to[0], 0);
        dup2(from[1], 1);
        execv(argv[1], argv + 1);
        _exit(fail(argv[1], strerror(errno)));
    }
    close(to[0]);
    close(from[1]);
    if (find_library() != 0) return 1;
    mpi.Init(&argc, &argv);
    int place[2];
    mpi.Comm_rank(world, &place[0]);
    mpi.Comm_size(world, &place[1]);
    int failed = write_all(to[1], place, sizeof place) != 0 || carry(from[0], to[1]) != 0;
    close(to[1]);
    int status = 0;
    while (waitpid(program, &status, 0) < 0 && errno == EINTR) {}
    if (failed || status != 0) {
        char why[64];
        if (WIFSIGNALED(status)) snprintf(why, sizeof why, "killed by signal %d", WTERMSIG(status));
        else snprintf(why, sizeof why, "exit status %d", WEXITSTATUS(status));
        fail("a process ended early", why);
        mpi.Abort(world, 1);
        return 1;
    }
    mpi.Finalize();
    return 0;
}
