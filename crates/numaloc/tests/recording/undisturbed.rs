//! Recording does not affect a program built with `numaloc cc`: the layout of its memory, its forks and its signals.

use std::process::Command;

use crate::support::{compile, numaloc, ok};

/// Prints where blocks lie from each other in the heap and in threads' arenas.
const BLOCKS: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
static unsigned long places(int blocks, size_t step)
{
    char *first = malloc(step), *block[200];
    unsigned long hash = 0;
    for (int i = 0; i < blocks; i++) {
        block[i] = malloc(step * i + 8);
        block[i][0] = 1;
        hash = hash * 31 + (unsigned long)(block[i] - first);
    }
    for (int i = 0; i < blocks; i += 2) free(block[i]);
    return hash;
}
static pthread_barrier_t barrier;
static void *of_thread(void *found)
{
    pthread_barrier_wait(&barrier);
    *(unsigned long *)found = places(100, 40);
    return 0;
}
int main(void)
{
    unsigned long found[3];
    pthread_barrier_init(&barrier, 0, 1);
    printf("small %lx\n", places(200, 37));
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        pthread_create(&thread, 0, of_thread, &found[i]);
        pthread_join(thread, 0);
        printf("thread %lx\n", found[i]);
    }
    return 0;
}
"#;

#[test]
fn blocks_lie_where_they_lie_without_a_recording() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "blocks", BLOCKS, true);
    let alone = ok(&mut Command::new(&program));
    let folder = dir.path().join("p.numaloc");
    let recorded = ok(numaloc(&["record", "--quiet", "-o"])
        .arg(&folder)
        .arg("--")
        .arg(&program));
    assert_eq!(recorded, alone);
}

const ROUNDS: usize = 100;
/// Forks while threads begin and end, all of them interrupted all the time.
const FORKS: &str = r#"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile long cells[8];
static void on_alarm(int signal) { cells[6] += signal; }
static void *work(void *which)
{
    for (int i = 0; i < 100; i++) {
        cells[(long)which]++;
        free(malloc(100 + i));
    }
    return 0;
}
int main(int count, char **arguments)
{
    struct itimerval often = {{0, 50}, {0, 50}};
    signal(SIGALRM, on_alarm);
    setitimer(ITIMER_REAL, &often, 0);
    for (int rounds = atoi(arguments[1]); rounds > 0; rounds--) {
        pthread_t threads[4];
        for (long i = 0; i < 4; i++) pthread_create(&threads[i], 0, work, (void *)i);
        pid_t child = fork();
        if (!child) {
            pthread_t one;
            pthread_create(&one, 0, work, (void *)5);
            pthread_join(one, 0);
            _exit(7);
        }
        for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
        int status;
        while (waitpid(child, &status, 0) < 0);
        if (WEXITSTATUS(status) != 7) return 1;
    }
    puts("done");
    return 0;
}
"#;

#[test]
fn forks_amid_threads_and_signals_end_and_have_their_paths() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "forks", FORKS, true);
    let folder = dir.path().join("p.numaloc");
    let recorder = numaloc(&[]);
    let said = ok(Command::new("timeout")
        .args(["-s", "KILL", "400"])
        .arg(recorder.get_program())
        .args(["record", "--quiet", "-o"])
        .arg(&folder)
        .arg("--")
        .arg(&program)
        .arg(ROUNDS.to_string()));
    assert_eq!(said, "done\n");
    let profile = numaloc_formats::profile::read(&folder).unwrap();
    let paths: Vec<&str> = profile.threads().iter().map(|t| t.path.as_str()).collect();
    assert_eq!(paths.iter().find(|path| path.contains("unknown")), None);
    // The first thread, and for each round four, a child's first and the one it makes.
    assert_eq!(paths.len(), 1 + ROUNDS * 6);
}

/// Forks while another thread has the loader list the files in memory, for which the loader holds a lock: in the
/// children it is locked for ever.
const LISTS: &str = r#"
#define _GNU_SOURCE
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile int ended;
static int look(struct dl_phdr_info *info, size_t size, void *count) { ++*(int *)count; return 0; }
static void *list(void *unused)
{
    int count = 0;
    while (!ended) dl_iterate_phdr(look, &count);
    return unused;
}
static void *work(void *cell) { ++*(int *)cell; return 0; }
int main(int count, char **arguments)
{
    pthread_t lister;
    pthread_create(&lister, 0, list, 0);
    for (int rounds = atoi(arguments[1]); rounds > 0; rounds--) {
        pid_t child = fork();
        if (!child) {
            pthread_t one;
            int cell = 0;
            pthread_create(&one, 0, work, &cell);
            pthread_join(one, 0);
            _exit(6 + cell);
        }
        int status;
        waitpid(child, &status, 0);
        if (WEXITSTATUS(status) != 7) return 1;
    }
    ended = 1;
    pthread_join(lister, 0);
    puts("done");
    return 0;
}
"#;

#[test]
fn children_forked_while_the_loader_holds_its_lock_create_threads() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "lists", LISTS, true);
    let recorder = numaloc(&[]);
    let said = ok(Command::new("timeout")
        .args(["-s", "KILL", "400"])
        .arg(recorder.get_program())
        .args(["record", "--quiet", "-o"])
        .arg(dir.path().join("p.numaloc"))
        .arg("--")
        .arg(&program)
        .arg("30"));
    assert_eq!(said, "done\n");
}
