/* Programs executed in unusual ways, and the errors of those that cannot be. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static char name[64];

static void report(const char *what)
{
    int status;
    wait(&status);
    printf("%s: status %x\n", what, status);
    fflush(stdout);
}

static void failed(const char *what)
{
    printf("%s: %s\n", what, strerror(errno));
    fflush(stdout);
    _exit(9);
}

static void tried(const char *what, const char *path, char **arguments, char **environment)
{
    if (!fork()) {
        execve(path, arguments, environment);
        failed(what);
    }
    report(what);
}

static const char *made(const char *text, int length, int mode)
{
    int file = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0700);
    if (write(file, text, length) != length) _exit(8);
    close(file);
    chmod(name, mode);
    return name;
}

static void copied(int to)
{
    static char bytes[1 << 16];
    int from = open("/proc/self/exe", O_RDONLY), count;
    while ((count = read(from, bytes, sizeof bytes)) > 0)
        if (write(to, bytes, count) != count) _exit(8);
    close(from);
}

int main(int count, char **arguments)
{
    char *again[] = {"again", "and", 0}, *one[] = {"true", 0}, path[64], link[256];
    if (count > 1 && !strcmp(arguments[0], "again")) {
        /* The name of a file in memory or of a deleted one is random. */
        int length = readlink("/proc/self/exe", link, sizeof link - 1);
        link[length < 0 ? 0 : length] = 0;
        FILE *line = fopen("/proc/self/cmdline", "r");
        length = fread(path, 1, sizeof path, line);
        printf("%s %d %d %d\n", arguments[1], !!strstr(link, "(deleted)"), access(link, X_OK), length);
        return 7;
    }
    sprintf(name, "./executes.%d", getpid());

    int memory = memfd_create("program", MFD_CLOEXEC);
    copied(memory);
    sprintf(path, "/proc/self/fd/%d", memory);
    if (!fork()) fexecve(memory, again, environ), failed("memory");
    report("memory");
    tried("memory by its name", path, again, environ);
    if (!fork()) {
        int file = open("/proc/self/exe", O_PATH | O_CLOEXEC);
        syscall(SYS_execveat, file, "", again, environ, AT_EMPTY_PATH);
        failed("path only");
    }
    report("path only");
    if (!fork()) {
        int file = open(name, O_RDWR | O_CREAT, 0700);
        copied(file);
        close(file);
        file = open(name, O_RDONLY | O_CLOEXEC);
        unlink(name);
        fexecve(file, again, environ);
        failed("deleted");
    }
    report("deleted");
    if (!fork()) {
        int folder = open("/bin", O_PATH);
        syscall(SYS_execveat, folder, "echo", (char *[]){"echo", "in a folder", 0}, environ, 0);
        failed("folder");
    }
    report("folder");

    tried("none", "/no/such", one, environ);
    tried("folder as program", "/tmp", one, environ);
    tried("file as folder", "/etc/passwd/x", one, environ);
    tried("empty name", "", one, environ);
    tried("no right", "/etc/passwd", one, environ);
    tried("device", "/dev/null", one, environ);
    tried("bad address", (char *)8, one, environ);
    tried("bad arguments", "/bin/true", (char **)8, environ);
    tried("bad environment", "/bin/true", one, (char **)8);
    tried("no arguments", "/bin/true", 0, environ);
    tried("no environment", "/bin/true", one, 0);
    static char longest[6000], long_argument[200000];
    memset(longest, 'a', sizeof longest - 1);
    tried("long name", longest, one, environ);
    memset(long_argument, 'a', sizeof long_argument - 1);
    tried("long argument", "/bin/true", (char *[]){"true", long_argument, 0}, environ);
    static char *many[3000];
    for (int i = 0; i < 2999; i++) many[i] = longest;
    tried("many arguments", "/bin/true", many, environ);

    tried("empty", made("", 0, 0700), one, environ);
    tried("no mark", made("echo hi\n", 8, 0700), one, environ);
    tried("no interpreter", made("#!/no/such\n", 11, 0700), one, environ);
    tried("empty interpreter", made("#! \n", 4, 0700), one, environ);
    tried("interpreter without right", made("#!/etc/passwd\n", 14, 0700), one, environ);
    tried("interpreter that is a folder", made("#!/etc\n", 7, 0700), one, environ);
    tried("broken program", made("\177ELF\2\1\1\0\0\0\0\0\0\0\0\0\2\0\76\0", 20, 0700), one, environ);
    sprintf(path, "#!%s\n", name);
    tried("itself", made(path, strlen(path), 0700), one, environ);
    if (!fork()) {
        int file = open(made("#!/bin/echo\n", 12, 0700), O_RDONLY | O_CLOEXEC);
        fexecve(file, one, environ);
        failed("script that is closed");
    }
    report("script that is closed");
    int writer = open(name, O_WRONLY | O_TRUNC);
    copied(writer);
    tried("written", name, again, environ);
    close(writer);
    tried("written before", name, again, environ);
    unlink(name);
    return 0;
}
