/* The program break by hand and through malloc: grows, shrinks, grows again, in parent and child; memory from a
 * grown break is zero. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int is_zero(const char *memory, long bytes)
{
    for (long i = 0; i < bytes; i++)
        if (memory[i])
            return 0;
    return 1;
}

static int exercise(void)
{
    const long step = 75 * 4096;
    char *start = sbrk(0);
    for (int i = 0; i < 40; i++) {
        char *more = sbrk(step);
        if (more != start + i * step || !is_zero(more, step))
            return 1;
        memset(more, 5, step);
    }
    if (sbrk(0) != start + 40 * step)
        return 2;
    if (sbrk(-20 * step) != start + 40 * step || sbrk(0) != start + 20 * step)
        return 3;
    char *again = sbrk(step);
    /* The page that contains the break may keep its bytes. */
    if (again != start + 20 * step || !is_zero(again + 4096, step - 4096))
        return 4;
    if (brk(start) || sbrk(0) != start)
        return 5;
    return 0;
}

int main(void)
{
    int result = exercise();
    if (result)
        return result;
    char *blocks[2000];
    for (int i = 0; i < 2000; i++)
        memset(blocks[i] = malloc(5000), i, 5000);
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 2000; i++)
            memset(malloc(5000), 1, 5000);
        _exit(blocks[1999][4999] == (char)1999 ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    for (int i = 0; i < 2000; i++)
        if (blocks[i][4999] != (char)i)
            return 7;
    return status ? 8 : 0;
}
