/*
 * The lab's agent: runs inside the virtual machine, as root, with the program under study as its child.
 *
 * It calibrates the plugin (which reported address is on which node), starts and stops the counting,
 * runs the program, samples where its pages are, and reports all of it as lines on the control port.
 *
 * Linked statically at AGENT_BASE (build.rs): the plugin knows its code by address and does not count it.
 * Markers are 8-byte no-ops that only the plugin notices; the table is crates/lab-plugin/src/marker.rs.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <linux/random.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { START = 1, STOP, PROBE, PROBE_END, ON_CPU, EXCLUDE, EXCLUDE_END, CODE, FIT };
enum { MAX_NODES = 64, MAX_ARGS = 4096, PAGE = 4096, PROBE_BYTES = 4 << 20, MAPS_BYTES = 1 << 20 };

/* Generated code goes here: in the range the plugin attributes to the agent, before AGENT_BASE (heap follows). */
#define STUB ((unsigned char *)0x79f00000)

static FILE *control;
static int out_port = -1, err_port = -1;
static char *cwd = "/", *stdin_path = "/dev/null", *thp = "never";
static char *excluded[64], *weights[MAX_NODES];
static int nodes, cpus, autonuma, trace_exit = 1, excluded_count, weight_count;
static struct timespec started;

static void say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vfprintf(control, format, args);
    va_end(args);
    fputc('\n', control);
    fflush(control);
}

static void off(void)
{
    fflush(NULL);
    sync();
    reboot(RB_POWER_OFF);
    _exit(1);
}

static void fail(const char *what)
{
    say("failed %s: %s", what, strerror(errno));
    off();
}

/* A system call, not the vDSO: otherwise the plugin would count the vDSO's loads for the program. */
static void read_clock(struct timespec *now)
{
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, now);
}

static double seconds(void)
{
    struct timespec now;
    read_clock(&now);
    return (double)(now.tv_sec - started.tv_sec) + 1e-9 * (double)(now.tv_nsec - started.tv_nsec);
}

/* ---- code written at run time ---- */

static unsigned char *put(unsigned char *at, const void *bytes, size_t count)
{
    memcpy(at, bytes, count);
    return at + count;
}

static unsigned char *put_marker(unsigned char *at, int command, int argument)
{
    unsigned char code[8] = { 0x0f, 0x1f, 0x84, 0x00, 0, 0, 0x4c, 0x4e };
    code[4] = (unsigned char)argument;
    code[5] = (unsigned char)command;
    return put(at, code, sizeof code);
}

static void map_stub(void)
{
    if (mmap(STUB, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0)
        != STUB)
        fail("map code");
}

static void marker(int command, int argument)
{
    map_stub();
    unsigned char *end = put_marker(STUB, command, argument);
    *end = 0xc3; /* ret */
    ((void (*)(void))STUB)();
}

/* Loads one byte of every page of [from, to) between two markers, and touches no other memory there. */
static void touch_between(int begin, int end, int argument, char *from, char *to)
{
    static const unsigned char loop[] = {
        0x8a, 0x07,                               /* 1: mov (%rdi),%al */
        0x48, 0x81, 0xc7, 0x00, 0x10, 0x00, 0x00, /* add $4096,%rdi    */
        0x48, 0x39, 0xf7,                         /* cmp %rsi,%rdi     */
        0x72, 0xf2,                               /* jb 1b             */
    };
    map_stub();
    unsigned char *at = put_marker(STUB, begin, argument);
    at = put(at, loop, sizeof loop);
    at = put_marker(at, end, argument);
    *at = 0xc3;
    ((void (*)(char *, char *))STUB)(from, to);
}

/* ---- calibration ---- */

static void bind_to_node(void *memory, size_t bytes, int node, unsigned flags)
{
    unsigned long mask[MAX_NODES / 64 + 1] = { 0 };
    mask[node / 64] |= 1ul << (node % 64);
    if (syscall(SYS_mbind, memory, bytes, MPOL_BIND, mask, (unsigned long)MAX_NODES + 1, flags))
        fail("bind probe memory");
}

/* Seen once: a bound page that was on another node. Such a page is moved. */
static void expect_node(void *memory, int node)
{
    int found = -1;
    for (int tries = 0; tries < 10; tries++) {
        if (syscall(SYS_get_mempolicy, &found, NULL, 0ul, memory, MPOL_F_NODE | MPOL_F_ADDR))
            fail("ask for a page's node");
        if (found == node)
            return;
        bind_to_node(memory, PAGE, node, MPOL_MF_MOVE);
    }
    say("failed probe memory of node %d: it is on node %d", node, found);
    off();
}

static void probe_node(int node)
{
    char *memory = mmap(NULL, PROBE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        fail("map probe memory");
    bind_to_node(memory, PROBE_BYTES, node, 0);
    memset(memory, 1, PROBE_BYTES);
    expect_node(memory, node);
    expect_node(memory + PROBE_BYTES - PAGE, node);
    touch_between(PROBE, PROBE_END, node, memory, memory + PROBE_BYTES);
    munmap(memory, PROBE_BYTES);
}

/* Tells the plugin where QEMU keeps this node's memory: the same bytes read as data, then executed. */
static void probe_code(int node)
{
    static const unsigned char load[] = { 0x8a, 0x05, 0x08, 0x00, 0x00, 0x00 }; /* mov 8(%rip),%al */
    map_stub();
    bind_to_node(STUB, PAGE, node, 0);
    unsigned char *at = put_marker(STUB, PROBE, node);
    expect_node(STUB, node);
    at = put(at, load, sizeof load); /* loads the first byte of the CODE marker below */
    at = put_marker(at, PROBE_END, node);
    at = put_marker(at, CODE, node);
    *at = 0xc3;
    ((void (*)(void))STUB)();
}

static void pin(int cpu)
{
    cpu_set_t *set = CPU_ALLOC(4096);
    size_t size = CPU_ALLOC_SIZE(4096);
    CPU_ZERO_S(size, set);
    for (int at = cpu < 0 ? 0 : cpu; at < (cpu < 0 ? cpus : cpu + 1); at++)
        CPU_SET_S(at, size, set);
    if (sched_setaffinity(0, size, set))
        fail("set affinity");
    CPU_FREE(set);
}

static int node_has_memory(int node)
{
    char path[64], line[128];
    long kib = 0;
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d/meminfo", node);
    FILE *file = fopen(path, "r");
    if (!file)
        fail("this kernel has fewer nodes than asked for");
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "Node %*d MemTotal: %ld", &kib) == 1)
            break;
    fclose(file);
    return kib > 0;
}

static void exclude(const char *path)
{
    struct stat status;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || fstat(file, &status))
        fail(path);
    if (status.st_size > 0) {
        size_t bytes = (size_t)status.st_size;
        char *memory = mmap(NULL, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, file, 0);
        if (memory == MAP_FAILED)
            fail(path);
        touch_between(EXCLUDE, EXCLUDE_END, 0, memory, memory + bytes);
        munmap(memory, bytes);
    }
    close(file);
}

static void calibrate(void)
{
    for (int cpu = 0; cpu < cpus; cpu++) {
        pin(cpu);
        marker(ON_CPU, cpu);
        say("progress cpu %d", cpu);
    }
    pin(0); /* the plugin keeps the last probed address by vCPU */
    for (int node = 0; node < nodes; node++)
        if (node_has_memory(node)) {
            probe_node(node);
            say("progress node %d", node);
        }
    marker(FIT, 0);
    for (int node = 0; node < nodes; node++)
        if (node_has_memory(node)) {
            probe_code(node);
            say("progress code %d", node);
        }
    for (int at = 0; at < excluded_count; at++) {
        exclude(excluded[at]);
        say("progress exclude %d", at);
    }
    pin(-1);
    say("calibrated %.3f", seconds());
}

/* ---- kernel counters and page locations ---- */

static void write_file(const char *path, const char *text)
{
    int file = open(path, O_WRONLY | O_CLOEXEC);
    if (file < 0 || write(file, text, strlen(text)) < 0)
        fail(path);
    close(file);
}

/* Of the kernel's weighted interleaving, one for each node from the first. */
static void set_weights(void)
{
    for (int node = 0; node < weight_count; node++) {
        char path[80];
        snprintf(path, sizeof path, "/sys/kernel/mm/mempolicy/weighted_interleave/node%d", node);
        write_file(path, weights[node]);
    }
}

/* Chosen when the guest was booted: a switch changes the kernel's code, which QEMU may miss (crates/lab/src/qemu.rs). */
static void check_balancing(void)
{
    FILE *file = fopen("/proc/sys/kernel/numa_balancing", "re");
    int found = -1;
    if (!file || fscanf(file, "%d", &found) != 1)
        fail("/proc/sys/kernel/numa_balancing");
    fclose(file);
    if (found != autonuma) {
        say("failed switch automatic NUMA balancing: it is %d", found);
        off();
    }
}

static void say_counters(const char *when)
{
    char name[64], line[256], path[64];
    unsigned long long value;
    FILE *file = fopen("/proc/vmstat", "re");
    if (!file)
        fail("/proc/vmstat");
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "%63s %llu", name, &value) == 2
            && (!strncmp(name, "numa_", 5) || !strncmp(name, "pgmigrate_", 10)))
            fprintf(control, "counter %s %s %llu\n", when, name, value);
    fclose(file);
    for (int node = 0; node < nodes; node++) {
        snprintf(path, sizeof path, "/sys/devices/system/node/node%d/numastat", node);
        file = fopen(path, "re");
        if (!file)
            continue;
        while (fgets(line, sizeof line, file))
            if (sscanf(line, "%63s %llu", name, &value) == 2)
                fprintf(control, "node-counter %s %d %s %llu\n", when, node, name, value);
        fclose(file);
    }
    fflush(control);
}

static char maps[MAPS_BYTES];
static size_t maps_used;

/* Adds one process's pages by node, in units of 4 KiB; keeps the text. 0 when it has no pages. */
static long read_maps(int pid, long long *pages)
{
    char path[64], line[4096];
    long seen = 0;
    snprintf(path, sizeof path, "/proc/%d/numa_maps", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    while (fgets(line, sizeof line, file)) {
        char *size = strstr(line, "kernelpagesize_kB=");
        long long scale = size ? atoll(size + 18) / 4 : 1;
        int node, length;
        long long count;
        for (char *at = strchr(line, ' '); at; at = strchr(at + 1, ' '))
            if (sscanf(at, " N%d=%lld%n", &node, &count, &length) == 2 && node >= 0 && node < MAX_NODES) {
                pages[node] += count * scale;
                seen += count;
            }
        int used = snprintf(maps + maps_used, sizeof maps - maps_used, "map %d %s", pid, line);
        if (used > 0 && (size_t)used < sizeof maps - maps_used)
            maps_used += (size_t)used;
    }
    fclose(file);
    return seen;
}

/* Where all pages of all programs are now. */
static void snapshot(void)
{
    long long pages[MAX_NODES] = { 0 };
    long seen = 0;
    size_t kept = maps_used;
    DIR *folder = opendir("/proc");
    if (!folder)
        return;
    maps_used = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        int pid = atoi(entry->d_name);
        if (pid > 1 && pid != getpid())
            seen += read_maps(pid, pages);
    }
    closedir(folder);
    if (!seen) {
        maps_used = kept; /* no processes with pages left: keep the earlier text */
        return;
    }
    fprintf(control, "pages %.6f", seconds());
    for (int node = 0; node < nodes; node++)
        fprintf(control, " %lld", pages[node]);
    fputc('\n', control);
    fflush(control);
}

/* ---- the program ---- */

static char *read_all(const char *path, size_t *length)
{
    FILE *file = fopen(path, "re");
    if (!file)
        fail(path);
    char *text = malloc(1 << 20);
    *length = fread(text, 1, (1 << 20) - 1, file);
    text[*length] = 0;
    fclose(file);
    return text;
}

/* The NUL-terminated strings of a file as a vector that ends with NULL. */
static char **strings(const char *path)
{
    size_t length;
    int count = 0;
    char *text = read_all(path, &length);
    char **vector = calloc(MAX_ARGS + 1, sizeof *vector);
    for (char *at = text; at < text + length && count < MAX_ARGS; at += strlen(at) + 1)
        vector[count++] = at;
    return vector;
}

/* A guest that was kept would give each program the same random numbers. */
static void seed_random_numbers(void)
{
    size_t length;
    char *seed = read_all("/numaloc-lab/seed", &length);
    int port = open("/dev/urandom", O_WRONLY | O_CLOEXEC);
    if (port < 0 || write(port, seed, length) != (ssize_t)length || ioctl(port, RNDRESEEDCRNG))
        fail("seed the random numbers");
    close(port);
    free(seed);
}

static void read_options(void)
{
    size_t length;
    char *text = read_all("/numaloc-lab/options", &length), *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *value = strchr(line, ' ');
        if (!value)
            continue;
        *value++ = 0;
        if (!strcmp(line, "nodes"))
            nodes = atoi(value);
        else if (!strcmp(line, "cpus"))
            cpus = atoi(value);
        else if (!strcmp(line, "autonuma"))
            autonuma = atoi(value);
        else if (!strcmp(line, "thp"))
            thp = value;
        else if (!strcmp(line, "cwd"))
            cwd = value;
        else if (!strcmp(line, "stdin"))
            stdin_path = value;
        else if (!strcmp(line, "trace_exit"))
            trace_exit = atoi(value);
        else if (!strcmp(line, "exclude") && excluded_count < 64)
            excluded[excluded_count++] = value;
        else if (!strcmp(line, "weight") && weight_count < MAX_NODES)
            weights[weight_count++] = value;
    }
    if (nodes < 1 || nodes > MAX_NODES || cpus < 1) {
        errno = EINVAL;
        fail("read options");
    }
}

static void run_child(int go, int failed)
{
    char byte, **argv = strings("/numaloc-lab/argv"), **env = strings("/numaloc-lab/env");
    int input = open(stdin_path, O_RDONLY);
    setsid();
    pin(-1);
    if (chdir(cwd) || input < 0 || dup2(input, 0) < 0 || dup2(out_port, 1) < 0 || dup2(err_port, 2) < 0)
        goto out;
    close(input);
    signal(SIGCHLD, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (read(go, &byte, 1) != 1)
        goto out;
    execve(argv[0], argv, env);
out:;
    int why = errno;
    if (write(failed, &why, sizeof why) < 0)
        _exit(126);
    _exit(why == ENOENT ? 127 : 126);
}

/* Waits for the program; samples its pages at growing intervals, and once more as it exits. */
static int wait_for(pid_t child)
{
    long pause_ms = 50;
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, SIGCHLD);
    for (;;) {
        int status;
        pid_t who;
        while ((who = waitpid(-1, &status, WNOHANG | __WALL)) > 0) {
            if (WIFSTOPPED(status)) {
                int event = status >> 16, signal = WSTOPSIG(status);
                if (event == PTRACE_EVENT_EXIT)
                    snapshot();
                if (event == PTRACE_EVENT_STOP && signal != SIGTRAP)
                    ptrace(PTRACE_LISTEN, who, 0, 0); /* a real stop: stay stopped */
                else
                    ptrace(PTRACE_CONT, who, 0, event ? 0 : signal);
            } else if (who == child)
                return status;
        }
        if (who < 0 && errno == ECHILD)
            fail("wait for the program");
        struct timespec pause = { pause_ms / 1000, pause_ms % 1000 * 1000000 };
        if (sigtimedwait(&only, NULL, &pause) < 0 && errno == EAGAIN) {
            snapshot();
            if (pause_ms < 1000)
                pause_ms += pause_ms / 2;
        }
    }
}

/* The port of that name; the driver may need a moment to create it. */
static int open_port(const char *name)
{
    for (int tries = 0; tries < 500; tries++) {
        for (int at = 0; at < 16; at++) {
            char path[80], text[64] = "";
            snprintf(path, sizeof path, "/sys/class/virtio-ports/vport0p%d/name", at);
            FILE *file = fopen(path, "re");
            if (!file)
                continue;
            if (!fgets(text, sizeof text, file))
                text[0] = 0;
            fclose(file);
            text[strcspn(text, "\n")] = 0;
            if (strcmp(text, name))
                continue;
            snprintf(path, sizeof path, "/dev/vport0p%d", at);
            int port = open(path, O_RDWR | O_CLOEXEC);
            if (port >= 0)
                return port;
        }
        struct timespec pause = { 0, 20000000 };
        nanosleep(&pause, NULL);
    }
    return -1;
}

int main(void)
{
    int go[2], failed[2], why = 0;
    read_clock(&started);
    int port = open_port("numaloc.control");
    if (port < 0 || !(control = fdopen(port, "w"))) {
        puts("numaloc-lab: no control port");
        off();
    }
    out_port = open_port("numaloc.out");
    err_port = open_port("numaloc.err");
    if (out_port < 0 || err_port < 0)
        fail("open the output ports");
    seed_random_numbers();
    read_options();
    say("ready 1");
    calibrate();
    check_balancing();
    write_file("/sys/kernel/mm/transparent_hugepage/enabled", thp);
    set_weights();

    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, SIGCHLD);
    sigprocmask(SIG_BLOCK, &only, NULL);
    if (pipe2(go, O_CLOEXEC) || pipe2(failed, O_CLOEXEC))
        fail("make pipes");
    pid_t child = fork();
    if (child < 0)
        fail("fork");
    if (child == 0)
        run_child(go[0], failed[1]);
    close(failed[1]);
    if (trace_exit && ptrace(PTRACE_SEIZE, child, 0, PTRACE_O_TRACEEXIT))
        fail("watch the program's exit");
    say_counters("before");
    read_clock(&started);
    marker(START, 0);
    if (write(go[1], "g", 1) != 1)
        fail("start the program");
    int status = wait_for(child);
    marker(STOP, 0);
    double took = seconds();
    say_counters("after");
    fwrite(maps, 1, maps_used, control);
    if (read(failed[0], &why, sizeof why) == sizeof why)
        say("not-started %d %s", why, strerror(why));
    if (WIFSIGNALED(status))
        say("killed %d", WTERMSIG(status));
    else
        say("exited %d", WEXITSTATUS(status));
    say("end %.6f", took);
    off();
}
