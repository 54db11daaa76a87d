/* A server of processes: for each of ROUNDS rounds, CLIENTS children at the same time, which serve one request each from
 * memory that all share; and a writer, which lives as long as the server. All have titles. Each prints what it is and
 * on which PUs it may run, the server the memory policy of the cache.
 *
 * usage: forking CLIENTS ROUNDS [wait]
 * With wait, the writer waits until its PUs are no longer those with which it was forked, for a minute at most. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Pages that all share, bytes of each client as a power of two, and how often each reads all of the pages. */
#ifndef PAGES
#define PAGES 64
#define OWN 16
#define REPEAT 50
#endif
#define CACHE (PAGES << 12)

static char *title;
static size_t room;
static volatile char *cache;

static void call(const char *text)
{
    memset(title, 0, room);
    strncpy(title, text, room - 1);
}

/* The kernel's list, not the answer of sched_getaffinity. */
static void pus(char *list)
{
    char line[256];
    FILE *file = fopen("/proc/self/status", "r");
    *list = 0;
    while (file && fgets(line, sizeof line, file))
        sscanf(line, "Cpus_allowed_list: %63s", list);
    if (file)
        fclose(file);
}

static void serve(int number, int begin)
{
    char list[64], name[32], byte;
    long sum = 0;
    snprintf(name, sizeof name, "fork: client %d", number);
    call(name);
    char *own = malloc(1 << OWN);
    memset(own, number, 1 << OWN);
    /* All of a round are there. */
    if (read(begin, &byte, 1) < 0)
        _exit(3);
    for (int round = 0; round < REPEAT; round++)
        for (int at = 0; at < CACHE; at += 64)
            sum += cache[at] + own[at & ((1 << OWN) - 1)];
    pus(list);
    printf("client %s %d\n", list, sum > 0);
    fflush(stdout);
    _exit(0);
}

static void write_back(int end, int waits)
{
    char before[64], now[64], byte;
    time_t until = time(0) + 60;
    pus(before);
    call("fork: writer");
    do {
        for (int at = 0; at < CACHE; at += 64)
            cache[at] = 1;
        usleep(1000);
        pus(now);
    } while (waits && strcmp(before, now) == 0 && time(0) < until);
    if (read(end, &byte, 1) < 0)
        _exit(3);
    printf("writer %s\n", now);
    fflush(stdout);
    _exit(0);
}

int main(int count, char **arguments)
{
    int clients = count > 1 ? atoi(arguments[1]) : 2, rounds = count > 2 ? atoi(arguments[2]) : 1;
    int waits = count > 3, status = 0, failed = 0, end[2];
    title = arguments[0];
    room = arguments[count - 1] + strlen(arguments[count - 1]) - title;
    cache = mmap(0, CACHE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int at = 0; at < CACHE; at++)
        cache[at] = 1;
    if (pipe(end))
        return 3;
    pid_t writer = fork();
    if (writer == 0) {
        close(end[1]);
        write_back(end[0], waits);
    }
    for (int round = 0; round < rounds; round++) {
        int begin[2];
        if (pipe(begin))
            return 3;
        for (int client = 0; client < clients; client++)
            if (fork() == 0) {
                close(begin[1]);
                close(end[1]);
                serve(client, begin[0]);
            }
        close(begin[0]);
        close(begin[1]);
        for (int client = 0; client < clients; client++) {
            /* The writer waits for the end of the pipe. */
            wait(&status);
            failed |= status;
        }
    }
    close(end[1]);
    waitpid(writer, &status, 0);
    char line[512];
    snprintf(line, sizeof line, "%lx ", (unsigned long)cache);
    size_t length = strlen(line);
    FILE *maps = fopen("/proc/self/numa_maps", "r");
    char found[512];
    while (maps && fgets(found, sizeof found, maps))
        if (strncmp(found, line, length) == 0) {
            char policy[64];
            sscanf(found + length, "%63s", policy);
            printf("cache %s\n", policy);
        }
    if (maps)
        fclose(maps);
    return failed || status;
}
