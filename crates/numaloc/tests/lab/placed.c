/* Pages placed in every way: the first thread (a), bound to the first CPU, and another (b), bound to the last, use memory
   in an order in which the kernel's rules say which of them places its pages. Each line that is printed is a kind, who
   must have placed its pages, their first address and number, and how many of them the kernel has on the nodes of a and
   b; with one node all are on both. In the virtual machine the kernel itself is asked. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#define PAGE 4096L
#define N (64 * PAGE)
enum { POPULATE_READ = 22, POPULATE_WRITE = 23 };
static pthread_barrier_t before, after;
static void (*volatile job)(char *);
static char *volatile given;
static volatile long sum;

static void bind_to(long cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
}
static void load(char *p) { for (long i = 0; i < N; i += 64) sum += p[i]; }
static void store(char *p) { for (long i = 0; i < N; i += 64) p[i] = 1; }
static void use(char *p) { for (int k = 0; k < 4; k++) for (long i = 0; i < N; i += 64) p[i] += 1; }
static void *work(void *unused)
{
    bind_to(sysconf(_SC_NPROCESSORS_ONLN) - 1);
    for (;;) {
        pthread_barrier_wait(&before);
        if (!job) return unused;
        job(given);
        pthread_barrier_wait(&after);
    }
}
static void by_b(void (*what)(char *), char *p)
{
    job = what;
    given = p;
    pthread_barrier_wait(&before);
    pthread_barrier_wait(&after);
}
static void show_part(const char *kind, char who, char *p, long pages)
{
    static void *at[4096];
    static int status[4096];
    long nodes[2] = {0, 0};
    unsigned cpu, node[2] = {0, 0};
    bind_to(sysconf(_SC_NPROCESSORS_ONLN) - 1);
    getcpu(&cpu, node + 1);
    bind_to(0);
    getcpu(&cpu, node);
    for (long i = 0; i < pages; i++) at[i] = p + i * PAGE;
    int failed = syscall(SYS_move_pages, 0, pages, at, 0, status, 0) != 0;
    for (long i = 0; i < pages; i++)
        for (int k = 0; k < 2; k++) nodes[k] += failed || status[i] == (int)node[k];
    printf("%s %c %p %ld %ld %ld\n", kind, who, (void *)p, pages, nodes[0], nodes[1]);
    fflush(stdout);
}
static void show(const char *kind, char who, char *p) { show_part(kind, who, p, N / PAGE); }
static char *fresh(int flags) { return mmap(0, N, 3, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0); }
static int file(void)
{
    int f = memfd_create("numbers", 0);
    static char page[PAGE];
    for (long i = 0; i < N / PAGE; i++) if (write(f, page, PAGE) != PAGE) exit(2);
    return f;
}

static void given_back(void)
{
    char *p = fresh(0);
    store(p); by_b(use, p); show("stored", 'a', p);
    p = fresh(0);
    store(p); madvise(p, N, MADV_DONTNEED); by_b(use, p); show("dontneed", 'b', p);
    p = fresh(0);
    store(p); madvise(p, N, MADV_FREE); by_b(use, p); show("free", 'a', p);
    p = fresh(0);
    store(p); mprotect(p, N, 0); madvise(p, N, MADV_DONTNEED); mprotect(p, N, 3); by_b(use, p); show("protected", 'b', p);
    p = fresh(0);
    store(p); if (mmap(p, N, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != p) exit(2);
    by_b(use, p); show("replaced", 'b', p);
    p = (char *)(((long)sbrk(4 * N) + N) & -PAGE);
    store(p); sbrk(-4 * N); sbrk(4 * N); by_b(use, p); show("break", 'b', p);
    p = fresh(0);
    load(p); by_b(use, p); show("zero-page", 'b', p);
}
static void populated(void)
{
    char *p = fresh(MAP_POPULATE);
    by_b(use, p); show("populate", 'a', p);
    p = fresh(MAP_LOCKED);
    by_b(use, p); show("map-locked", 'a', p);
    p = fresh(0);
    if (!mlock(p, N)) { by_b(use, p); show("mlock", 'a', p); }
    p = fresh(0);
    if (!syscall(SYS_mlock2, p, N, 1)) { by_b(use, p); show("mlock-on-fault", 'b', p); }
    p = fresh(0);
    if (!madvise(p, N, POPULATE_WRITE)) { by_b(use, p); show("populate-write", 'a', p); }
    p = fresh(0);
    if (!madvise(p, N, POPULATE_READ)) { by_b(use, p); show("populate-read", 'b', p); }
    p = mmap(0, N, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    mprotect(p, N, 3); by_b(use, p); show("populate-read-only", 'b', p);
    p = mmap(0, N, 0, MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED, -1, 0);
    mprotect(p, N, 3); by_b(use, p); show("locked-then-writable", 'a', p);
    if (!mlockall(MCL_FUTURE)) {
        p = fresh(0);
        munlockall();
        by_b(use, p); show("mlockall", 'a', p);
    }
}
static void by_kernel(void)
{
    int f = file(), ends[2];
    char *p = fresh(0);
    if (pread(f, p, N, 0) != N) exit(2);
    by_b(use, p); show("pread", 'a', p);
    p = fresh(0);
    struct iovec parts[2] = {{p + N / 2, N / 2}, {p, N / 2}};
    if (preadv(f, parts, 2, 0) != N) exit(2);
    by_b(use, p); show("preadv", 'a', p);
    p = fresh(0);
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    for (long i = 0; i < N; i += PAGE) {
        if (write(ends[0], p + i, PAGE) != PAGE || recv(ends[1], p + i, PAGE, MSG_WAITALL) != PAGE) exit(2);
    }
    by_b(use, p); show("recv", 'a', p);
    p = fresh(0);
    for (long i = 0; i < N; i += PAGE) if (getentropy(p + i, 256)) exit(2);
    by_b(use, p); show("getrandom", 'a', p);
}
static void files(void)
{
    int f = file();
    char *p = mmap(0, N, 3, MAP_PRIVATE, f, 0);
    load(p); by_b(use, p); show("private-file", 'b', p);
    p = mmap(0, N, 3, MAP_PRIVATE | MAP_POPULATE, f, 0);
    by_b(use, p); show("private-file-populated", 'a', p);
    p = mmap(0, N, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    load(p); by_b(use, p); show("shared", 'a', p);
    f = memfd_create("other", 0);
    if (ftruncate(f, N)) exit(2);
    p = mmap(0, N, 3, MAP_SHARED, f, 0);
    store(p); fallocate(f, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, N); by_b(use, p); show("punched", 'b', p);
    if (ftruncate(f, 0) || ftruncate(f, N)) exit(2);
    store(p); if (ftruncate(f, 0) || ftruncate(f, N)) exit(2);
    by_b(use, p); show("truncated", 'b', p);
    p = mmap(0, N, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    store(p); madvise(p, N, MADV_REMOVE); by_b(use, p); show("removed", 'b', p);
}
static void moved(void)
{
    char *p = fresh(0), *to = fresh(0);
    store(p); by_b(store, to);
    if (mremap(p, N, N, MREMAP_MAYMOVE | MREMAP_FIXED, to) != to) exit(2);
    by_b(use, to); show("moved-over", 'a', to);
    p = fresh(0);
    store(p);
    to = mremap(p, N, N, MREMAP_MAYMOVE | 4 /* MREMAP_DONTUNMAP */, 0);
    if (to != MAP_FAILED) {
        by_b(use, to); show("moved", 'a', to);
        by_b(use, p); show("left", 'b', p);
    }
}
/* 4 MiB with huge pages: a stores one byte of each, b uses the rest. Without huge pages b places all but two pages. */
static void huge(void)
{
    const long size = 2 << 20;
    char *p = mmap(0, 3 * size, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    p = (char *)(((long)p + size - 1) & -size);
    if (madvise(p, 2 * size, MADV_HUGEPAGE)) return;
    p[0] = p[size] = 1;
    by_b(use, p + N); by_b(use, p + size + N);
    show_part("huge", 'a', p + N, N / PAGE); show_part("huge", 'a', p + size + N, N / PAGE);
}
static void forked(void)
{
    char *p = fresh(0), *q = fresh(0);
    store(p); store(q);
    fflush(stdout);
    if (!fork()) {
        bind_to(sysconf(_SC_NPROCESSORS_ONLN) - 1);
        load(p); use(q);
        show("inherited", 'A', p); show("copied", 'B', q);
        _exit(0);
    }
    wait(0);
}
int main(void)
{
    pthread_t thread;
    bind_to(0);
    pthread_barrier_init(&before, 0, 2);
    pthread_barrier_init(&after, 0, 2);
    pthread_create(&thread, 0, work, 0);
    given_back();
    populated();
    by_kernel();
    files();
    moved();
    huge();
    job = 0;
    pthread_barrier_wait(&before);
    pthread_join(thread, 0);
    forked();
    return 0;
}
