/* Traces its own children: traces WAY PROGRAM, where WAY is
 *   me      the child asks to be traced (fork)
 *   vfork   the same, in a child that shares its parent's memory, and then in one that does not
 *   seize   the parent attaches to a running child that has threads
 *   often   the same a hundred times, to children that may not have started
 * Ends with 0 if tracing works: the child's exec is seen, or the child stops when it is attached to. */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

static void *sleeper(void *unused)
{
    for (;;)
        pause();
    return unused;
}

static int seize_new_child(void)
{
    int status;
    pid_t child = fork();
    if (child == 0)
        sleeper(0);
    long refused = ptrace(PTRACE_SEIZE, child, 0, 0);
    kill(child, SIGKILL);
    if (refused)
        return 6;
    return waitpid(child, &status, __WALL) == child && WIFSIGNALED(status) ? 0 : 5;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 9;
    if (strcmp(argv[1], "often") == 0) {
        int failed = 0;
        for (int i = 0; i < 100 && !failed; i++)
            failed = seize_new_child();
        return failed;
    }
    int seize = strcmp(argv[1], "seize") == 0;
    if (strcmp(argv[1], "vfork") == 0) {
        pid_t first = vfork();
        if (first == 0) {
            if (ptrace(PTRACE_TRACEME, 0, 0, 0))
                _exit(8);
            execl(argv[2], argv[2], (char *)0);
            _exit(7);
        }
        int ended;
        waitpid(first, &ended, 0);
        if (!WIFSTOPPED(ended) || ptrace(PTRACE_CONT, first, 0, 0) || waitpid(first, &ended, 0) != first)
            return 10;
    }
    pid_t child = fork();
    if (child == 0) {
        if (seize) {
            pthread_t thread;
            pthread_create(&thread, 0, sleeper, 0);
            sleeper(0);
        }
        if (ptrace(PTRACE_TRACEME, 0, 0, 0))
            _exit(8);
        execl(argv[2], argv[2], (char *)0);
        _exit(7);
    }
    int status;
    if (seize) {
        if (ptrace(PTRACE_SEIZE, child, 0, 0))
            return 6;
        if (ptrace(PTRACE_INTERRUPT, child, 0, 0) || waitpid(child, &status, __WALL) != child || !WIFSTOPPED(status))
            return 5;
        kill(child, SIGKILL);
        waitpid(child, &status, __WALL);
        return 0;
    }
    /* The kernel stops a traced process when it has executed a program. */
    if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status) || WSTOPSIG(status) != SIGTRAP)
        return 4;
    if (ptrace(PTRACE_CONT, child, 0, 0) || waitpid(child, &status, 0) != child)
        return 3;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 2;
}
