/* A server of threads: in each of ROUNDS rounds CLIENTS threads without names that run `serve`, at the same time; one
 * thread without a name that runs `flush`; and two that the server names io_1 and io_2. Each prints what it is and on
 * which PUs it may run.
 *
 * usage: threaded CLIENTS ROUNDS [wait]
 * With wait, the io threads wait until their PUs are others than the server's, for a minute at most. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CACHE (64 << 12)

static volatile char *cache;
static int waits, is_over;
static char before[64];
static pthread_barrier_t begin;
static pthread_mutex_t output = PTHREAD_MUTEX_INITIALIZER;

static void pus(char *list)
{
    char line[256];
    FILE *file = fopen("/proc/thread-self/status", "r");
    *list = 0;
    while (file && fgets(line, sizeof line, file))
        sscanf(line, "Cpus_allowed_list: %63s", list);
    if (file)
        fclose(file);
}

static void say(const char *what, const char *list)
{
    pthread_mutex_lock(&output);
    printf("%s %s\n", what, list);
    fflush(stdout);
    pthread_mutex_unlock(&output);
}

static void *serve(void *argument)
{
    char list[64];
    long sum = 0;
    /* All of a round are there. */
    pthread_barrier_wait(&begin);
    for (int round = 0; round < 50; round++)
        for (int at = 0; at < CACHE; at += 64)
            sum += cache[at];
    pus(list);
    say("client", list);
    return argument + (sum == 0);
}

static void *flush(void *argument)
{
    char list[64];
    while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE)) {
        for (int at = 0; at < CACHE; at += 64)
            cache[at] = 1;
        usleep(1000);
    }
    pus(list);
    say("flush", list);
    return argument;
}

static void *io(void *argument)
{
    char now[64];
    time_t until = time(0) + 60;
    do {
        for (int at = 0; at < CACHE; at += 64)
            cache[at] = 1;
        usleep(1000);
        pus(now);
    } while (waits && strcmp(before, now) == 0 && time(0) < until);
    while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE))
        usleep(1000);
    say("io", now);
    return argument;
}

int main(int count, char **arguments)
{
    int clients = count > 1 ? atoi(arguments[1]) : 2, rounds = count > 2 ? atoi(arguments[2]) : 1;
    pthread_t flusher, two[2], *all = calloc(clients, sizeof *all);
    waits = count > 3;
    cache = malloc(CACHE);
    memset((char *)cache, 1, CACHE);
    pus(before);
    pthread_create(&flusher, 0, flush, 0);
    for (int at = 0; at < 2; at++) {
        char name[16];
        snprintf(name, sizeof name, "io_%d", at + 1);
        pthread_create(&two[at], 0, io, 0);
        pthread_setname_np(two[at], name);
    }
    for (int round = 0; round < rounds; round++) {
        pthread_barrier_init(&begin, 0, clients);
        for (int client = 0; client < clients; client++)
            pthread_create(&all[client], 0, serve, 0);
        for (int client = 0; client < clients; client++)
            pthread_join(all[client], 0);
    }
    __atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
    pthread_join(flusher, 0);
    pthread_join(two[0], 0);
    pthread_join(two[1], 0);
    return 0;
}
