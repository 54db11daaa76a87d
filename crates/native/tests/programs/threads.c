// Many threads at once, signals to threads, forks from a threaded program.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long total;
static volatile int stop;
static __thread int own;
static int hits;

static void hit(int number) {
    (void)number;
    __atomic_fetch_add(&hits, 1, __ATOMIC_SEQ_CST);
}

static void *worker(void *number) {
    for (int n = 0; n < 50; ++n) {
        own += (int)(long)number;
        pthread_mutex_lock(&lock);
        ++total;
        pthread_mutex_unlock(&lock);
    }
    return (void *)(long)own;
}

static void *spinner(void *unused) {
    (void)unused;
    while (!stop)
        free(malloc(100));
    return NULL;
}

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 256;
    pthread_t *threads = malloc(sizeof *threads * (unsigned)count);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    long sum = 0;
    for (int round = 0; round < 3; ++round) {
        for (long n = 0; n < count; ++n)
            if (pthread_create(&threads[n], &small, worker, (void *)n))
                return 1;
        for (long n = 0; n < count; ++n) {
            void *result;
            pthread_join(threads[n], &result);
            sum += (long)result;
        }
    }
    printf("%ld %ld\n", total, sum);
    fflush(stdout);
    signal(SIGUSR1, hit);
    pthread_t spinners[4];
    for (int n = 0; n < 4; ++n)
        pthread_create(&spinners[n], NULL, spinner, NULL);
    int good = 0;
    for (int n = 0; n < 20; ++n) {
        for (int t = 0; t < 4; ++t)
            pthread_kill(spinners[t], SIGUSR1);
        pid_t child = fork();
        if (child == 0) {
            void *block = malloc(1000);
            pthread_t one;
            void *result;
            pthread_create(&one, NULL, worker, (void *)3L);
            pthread_join(one, &result);
            _exit(block && (long)result == 150 ? 42 : 1);
        }
        int status;
        waitpid(child, &status, 0);
        good += WIFEXITED(status) && WEXITSTATUS(status) == 42;
    }
    stop = 1;
    for (int n = 0; n < 4; ++n)
        pthread_join(spinners[n], NULL);
    printf("%d %d\n", good, hits > 0);
    FILE *shell = popen("echo $((6 * 7)); exit 3", "r");
    char line[64] = "";
    if (!fgets(line, sizeof line, shell))
        return 2;
    int status = pclose(shell);
    printf("%s%d\n", line, WEXITSTATUS(status));
    fflush(stdout);
    char *arguments[] = {"renamed", "-c", "echo $0 $#", NULL};
    execv("/bin/sh", arguments);
    return 3;
}
