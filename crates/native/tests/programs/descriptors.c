/* A program that lists and closes the descriptors it has, also those that it never opened. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void listed(const char *path)
{
    int numbers = 0, highest = 0;
    DIR *folder = opendir(path);
    for (struct dirent *entry; (entry = readdir(folder));)
        if (entry->d_name[0] != '.') {
            numbers++;
            if (atoi(entry->d_name) > highest) highest = atoi(entry->d_name);
        }
    closedir(folder);
    printf("%s: %d, up to %d\n", path, numbers, highest);
}

int main(int count, char **arguments)
{
    setvbuf(stdout, 0, _IOLBF, 0);
    /* Inherited from the test, which may have any. */
    syscall(SYS_close_range, 3, ~0u, 0);
    int found = 0;
    for (int i = 3; i < 100000; i++) found += fcntl(i, F_GETFD) >= 0;
    printf("open: %d\n", found);
    listed("/proc/self/fd");
    listed("/proc/self/fdinfo");
    for (int i = 3; i < 100000; i++) close(i);
    printf("next: %d\n", open("/dev/null", O_RDONLY));
    syscall(SYS_close_range, 3, ~0u, 4); /* CLOSE_RANGE_CLOEXEC */
    if (count > 1 && !strcmp(arguments[1], "full")) {
        /* As many files as it may have, which the next program does not get. */
        while (open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0) continue;
        if (!fork()) {
            execl("/no/such", "such", (char *)0);
            execl("/bin/echo", "echo", "executed", (char *)0);
        }
        int ended;
        wait(&ended);
        printf("ended %x\n", ended);
        return 0;
    }
    if (count > 1) return 0;
    if (!fork()) execl("/proc/self/exe", arguments[0], "again", (char *)0);
    int status;
    wait(&status);
    printf("status %x\n", status);
    return 0;
}
