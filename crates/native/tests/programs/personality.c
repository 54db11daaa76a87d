/* As Lisp systems do: executes itself again without random addresses, expects its heap right behind it, and runs code in
   memory that may be executed because it may be read. Build with -no-pie. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096 };
extern char end;

/* Calls code that returns a number, in a process of its own. */
static void call(const char *name, char *at, char number)
{
    const char code[] = {(char)0xb8, number, 0, 0, 0, (char)0xc3};
    pid_t child = fork();
    if (child == 0) {
        memcpy(at, code, sizeof code);
        mprotect(at, PAGE, PROT_READ);
        _exit(((int (*)(void))at)());
    }
    int status = 0;
    waitpid(child, &status, 0);
    printf("%s: %d, signal %d\n", name, WEXITSTATUS(status), WTERMSIG(status));
}

/* The same in this process, twice. */
static void twice(const char *name, char *at)
{
    for (char number = 1; number < 3; number++) {
        const char code[] = {(char)0xb8, number, 0, 0, 0, (char)0xc3};
        memcpy(at, code, sizeof code);
        printf("%s: %d\n", name, ((int (*)(void))at)());
    }
}

static char *mapped(void)
{
    return mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static char *page_of_heap(void)
{
    long odd = (long)sbrk(0) % PAGE;
    return (char *)sbrk(odd ? 2 * PAGE - odd : PAGE) + (odd ? PAGE - odd : 0);
}

int main(int count, char **arguments)
{
    setbuf(stdout, NULL);
    if (count == 1) {
        personality(PER_LINUX | ADDR_NO_RANDOMIZE);
        execl("/proc/self/exe", arguments[0], "again", NULL);
        return 9;
    }
    printf("%x, heap within a page: %d\n", personality(0xffffffff), (char *)sbrk(0) - &end <= PAGE);
    call("mapped before", mapped(), 3);
    personality(PER_LINUX | READ_IMPLIES_EXEC);
    printf("%x\n", personality(0xffffffff));
    twice("mapped", mapped());
    char *heap = page_of_heap();
    twice("heap", heap);
    brk(heap);
    // Refused: the program's code is above.
    printf("%d\n", brk((void *)1));
    twice("heap again", page_of_heap());
    int id = shmget(IPC_PRIVATE, PAGE, 0600);
    char *shared = shmat(id, NULL, 0);
    shmctl(id, IPC_RMID, NULL);
    twice("attached", shared);
    call("protected", mapped(), 4);
    personality(PER_LINUX);
    call("mapped after", mapped(), 5);
    return 0;
}
