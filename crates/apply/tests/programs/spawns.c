/* Creates two processes, one by vfork and exec, one by posix_spawn; each runs the argument. */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

int main(int argc, char **argv)
{
    char *command[] = {argc > 1 ? argv[1] : "", NULL};
    int status = 1;
    pid_t child = vfork();
    if (child == 0) {
        execv(command[0], command);
        _exit(9);
    }
    waitpid(child, &status, 0);
    if (status)
        return 1;
    if (posix_spawn(&child, command[0], NULL, NULL, command, environ))
        return 2;
    waitpid(child, &status, 0);
    return status ? 3 : 0;
}
