//! Names that programs give to their threads, processes, memory and generated code reach the profile and the page of
//! `show`.

use crate::native::{compile, read, recording};
use crate::support::{numaloc, ok};

/// The main thread names its thread, which waits, through the file of its name, and memory; its child, a process, and
/// that one's thread name themselves.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#define LENGTH (64 << 12)
static volatile char *memory;
static pthread_barrier_t both;
static void *work(void *argument)
{
    pthread_barrier_wait(&both);
    for (int i = 0; i < LENGTH; i++) memory[i] = 1;
    return argument;
}
static void *collect(void *argument)
{
    prctl(PR_SET_NAME, "collector 7");
    for (int i = 0; i < LENGTH; i++) memory[i] = 2;
    return argument;
}
int main(int count, char **arguments)
{
    pthread_t thread;
    memory = mmap(0, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    prctl(0x53564d41, 0, memory, LENGTH, "buffers");
    pthread_barrier_init(&both, 0, 2);
    pthread_create(&thread, 0, work, 0);
    int status = pthread_setname_np(thread, "io_thd_1");
    pthread_barrier_wait(&both);
    pthread_join(thread, 0);
    if (fork() == 0) {
        strcpy(arguments[0], "server: checkpointer");
        pthread_create(&thread, 0, collect, 0);
        pthread_join(thread, 0);
        return 0;
    }
    wait(0);
    return status;
}
"#;

#[test]
fn names_that_a_program_gives_are_recorded_next_to_the_identity() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "named.c", PROGRAM, &["-O1"]);
    // Only the native frontend knows where the arguments are.
    for (frontend, title) in [("native", "server: checkpointer"), ("qemu", "program")] {
        let folder = dir.path().join(format!("{frontend}.numaloc"));
        ok(recording(frontend, &folder, 1).arg(&program));
        let profile = read(&folder);
        let threads = profile.threads().iter();
        let threads: Vec<_> = threads
            .map(|t| (t.path.as_str(), t.name.as_deref(), t.title.as_deref()))
            .collect();
        let expected = [
            ("0", None, None),
            ("0.1", Some("io_thd_1"), None),
            ("0/1", None, Some(title)),
            ("0/1.1", Some("collector 7"), None),
        ];
        assert_eq!(threads, expected, "{frontend}");
        let label = profile.threads()[1].role.label();
        assert_eq!(label.as_deref(), Some("work"), "{frontend}");
        let named = |object: &&numaloc_model::profile::Object| {
            object.variables.iter().any(|part| part.name == "buffers")
        };
        let object = profile.objects().iter().find(named).unwrap();
        assert_eq!((object.name.as_str(), object.size), ("[anon]", 64 << 12));
        let shown = ok(numaloc(&["show", "--why"]).arg(&folder));
        for row in [
            "io_thd_1: buffers",
            &format!("{title}: "),
            "collector 7: buffers",
        ] {
            assert!(shown.contains(row), "{row}: {shown}");
        }
    }
}

/// A program generates a function that stores, and its forked child calls it too. Both name it, as `perf` reads it.
const GENERATING: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#define LENGTH (1 << 18)
/* movb $1,(%rdi); inc %rdi; dec %rsi; jnz; ret */
static const unsigned char CODE[] = {0xc6, 7, 1, 0x48, 0xff, 0xc7, 0x48, 0xff, 0xce, 0x75, 0xf5, 0xc3};
int main(void)
{
    char path[64];
    char *memory = mmap(0, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *code = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(code, CODE, sizeof CODE);
    snprintf(path, sizeof path, "/tmp/perf-%d.map", (int)getpid());
    FILE *map = fopen(path, "w");
    fprintf(map, "%lx %lx JS:*fill /fill.js:1:1\n", (unsigned long)code, (unsigned long)sizeof CODE);
    fclose(map);
    puts(path);
    fflush(stdout);
    if (fork() == 0) {
        ((void (*)(char *, long))code)(memory, LENGTH);
        _exit(0);
    }
    ((void (*)(char *, long))code)(memory, LENGTH);
    wait(0);
    return 0;
}
"#;

#[cfg(target_arch = "x86_64")]
#[test]
fn generated_code_has_the_names_that_the_program_writes_for_profilers() {
    let dir = tempfile::tempdir().unwrap();
    let built = compile(dir.path(), "generating.c", GENERATING, &["-O1"]);
    // Known by its name, as the server whose shared memory this is.
    let program = dir.path().join("postgres");
    std::fs::rename(built, &program).unwrap();
    let folder = dir.path().join("p.numaloc");
    let said = ok(recording("native", &folder, 1).arg(&program));
    let map = said.lines().find(|line| line.starts_with("/tmp/perf-"));
    std::fs::remove_file(map.unwrap()).unwrap();
    let profile = read(&folder);
    let fills = |thread: u32| {
        let sites = profile
            .sites()
            .iter()
            .filter(|site| site.thread.0 == thread);
        let mut functions = sites.filter_map(|site| site.here.function.as_deref());
        functions.any(|name| name == "JS:*fill /fill.js:1:1")
    };
    assert!(fills(0) && fills(1), "{:?}", profile.sites());
    let shown = ok(numaloc(&["show", "--why"]).arg(&folder));
    assert!(shown.contains("PostgreSQL shared_buffers"), "{shown}");
}

/// Threads of the C++ library: of a function, of a method, of an object with a name, and of one without.
const CPP: &str = r#"
#include <thread>
#include <vector>
static volatile long sums[4 * 64];
static void worker(int at, const char *) { for (int i = 0; i < 1000; i++) sums[64 * at] += i; }
struct Solver {
    void step(int at) { worker(at, "method"); }
    void operator()(int at) const { worker(at, "object"); }
};
int main()
{
    Solver solver;
    std::vector<std::thread> threads;
    threads.emplace_back(worker, 0, "function");
    threads.emplace_back(&Solver::step, &solver, 1);
    threads.emplace_back(solver, 2);
    threads.emplace_back([](int at) { worker(at, "lambda"); }, 3);
    for (auto &thread : threads)
        thread.join();
}
"#;

#[test]
fn threads_of_the_cpp_library_are_called_by_what_the_program_gave_them() {
    let dir = tempfile::tempdir().unwrap();
    let flags = ["-O1", "-std=c++17", "-lstdc++"];
    let program = compile(dir.path(), "threads.cpp", CPP, &flags);
    for frontend in ["native", "qemu"] {
        let folder = dir.path().join(format!("{frontend}.numaloc"));
        ok(recording(frontend, &folder, 1).arg(&program));
        let profile = read(&folder);
        let threads = profile.threads()[1..].iter();
        let labels: Vec<_> = threads.filter_map(|thread| thread.role.label()).collect();
        let expected = ["worker", "Solver::step", "Solver", "main::{lambda#1}"];
        assert_eq!(labels, expected, "{frontend}");
    }
}
