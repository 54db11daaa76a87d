/* Shared memory of each kind, 64 pages written in each: System V, a memfd, POSIX shm_open (its name is the
 * argument). A child process writes the second half of all three. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES (64 * 4096L)

static char *map(int file)
{
    if (file < 0 || ftruncate(file, BYTES))
        return NULL;
    char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 9;
    int segment = shmget(IPC_PRIVATE, BYTES, IPC_CREAT | 0600);
    char *shared[3] = {shmat(segment, NULL, 0), map(memfd_create("grid", 0)),
                       map(shm_open(argv[1], O_RDWR | O_CREAT | O_EXCL, 0600))};
    shmctl(segment, IPC_RMID, NULL);
    shm_unlink(argv[1]);
    for (int i = 0; i < 3; i++)
        if (!shared[i] || shared[i] == (char *)-1)
            return 1 + i;
    pid_t child = fork();
    for (int i = 0; i < 3; i++)
        memset(shared[i] + (child ? 0 : BYTES / 2), 7, BYTES / 2);
    if (child == 0)
        _exit(0);
    int status;
    waitpid(child, &status, 0);
    for (int i = 0; i < 3; i++)
        for (long at = 0; at < BYTES; at += 4096)
            if (status || shared[i][at] != 7)
                return 5;
    return 0;
}
