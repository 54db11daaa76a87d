//! OpenMP's constructs in virtual time, with GCC's libgomp and LLVM's libomp.
//!
//! Needs clang, libomp, gcc, qemu-x86_64 and the plugin (`cargo build --workspace` first).

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Load, by_slice, chosen, matrix, numaloc, ok, root, share, stretches};
use numaloc_model::Profile;

/// Builds a program with OpenMP, for the instrumentation frontend or as users do.
fn build(folder: &Path, compiler: &str, instrumented: bool, source: &Path) -> PathBuf {
    let stem = source.file_stem().unwrap().to_str().unwrap();
    let program = folder.join(format!("{stem}.{compiler}.{instrumented}"));
    let mut command = if instrumented {
        numaloc(&["cc", "--", compiler])
    } else {
        Command::new(compiler)
    };
    ok(command
        .args(["-O1", "-fopenmp", "-o"])
        .arg(&program)
        .arg(source));
    program
}

/// Records it.
fn recorded(program: &Path, threads: u32, arguments: &[&str]) -> Profile {
    let folder = program.with_extension(format!("{threads}.numaloc"));
    ok(numaloc(&["record", "--quiet", "--force", "-o"])
        .arg(&folder)
        .arg("--")
        .arg(program)
        .args(arguments)
        .env("OMP_NUM_THREADS", threads.to_string()));
    let profile = numaloc_formats::profile::read(&folder).unwrap();
    assert!(profile.meta().complete, "{:?}", profile.meta().notes);
    profile
}

fn source(name: &str) -> PathBuf {
    root().join("crates/numaloc/tests/openmp").join(name)
}

/// Accesses to a page of a stretch.
const PAGE: u64 = 512;

#[test]
fn tasks_run_after_their_creation_and_before_those_who_wait_for_them_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let cases = ["gcc", "clang"].map(|compiler| [(compiler, true), (compiler, false)]);
    for (compiler, instrumented) in cases.into_iter().flatten() {
        let program = build(dir.path(), compiler, instrumented, &source("tasks.c"));
        let compiler = format!("{compiler}, instrumented: {instrumented}");
        // The other thread is to run the tasks of the first part, which a host may be too busy for.
        let ran = (0..5).any(|_| ok(&mut Command::new(&program)) == "1 1 1\n");
        assert!(ran, "{compiler}");
        let when = stretches(&recorded(&program, 2, &[]));
        // Each stretch begins when the previous one has ended, except for work in between; 6 and 7 at the same time.
        // In unmodified programs the locks of the run-time library join too, in the order of the host.
        let between = if instrumented { 8 * PAGE } else { u64::MAX / 2 };
        let order = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (5, 7)];
        for (first, then) in order.into_iter().chain([(6, 8), (7, 8), (8, 9)]) {
            let end = when[first].end + PAGE;
            assert!(
                (end..end + between).contains(&when[then].start),
                "{compiler}: {then} begins at {}, {first} ends at {end}: {when:?}",
                when[then].start
            );
        }
        for pair in when[10..].chunks(2) {
            let end = pair[0].end + PAGE;
            assert!(when[9].end < pair[0].start, "{compiler}: {when:?}");
            assert!(end <= pair[1].start, "{compiler}: {pair:?} of {when:?}");
        }
    }
}

#[test]
fn iterations_and_detached_tasks_are_waited_for() {
    const ROWS: usize = 4;
    const GRID: usize = 6;
    const EVENTS: usize = GRID + ROWS * ROWS;
    const REDUCTION: usize = EVENTS + 9;
    let dir = tempfile::tempdir().unwrap();
    for compiler in ["gcc", "clang"] {
        let program = build(dir.path(), compiler, true, &source("waits.c"));
        assert_eq!(
            ok(&mut Command::new(&program)),
            "10 3 282769\n",
            "{compiler}"
        );
        let when = stretches(&recorded(&program, 2, &[]));
        // Each begins when the last of those that it waits for has ended, except for work in between.
        let begins = |then: usize, after: &[usize]| {
            let end = after.iter().map(|&first| when[first].end + PAGE).max();
            let due = end.unwrap()..end.unwrap() + 8 * PAGE;
            assert!(
                due.contains(&when[then].start),
                "{compiler}: {then} begins at {}, not in {due:?}: {when:?}",
                when[then].start
            );
        };
        for iteration in 1..GRID {
            begins(iteration, &[iteration - 1]);
        }
        // Two threads process the rows alternately.
        for (row, column) in (0..ROWS * ROWS).map(|cell| (cell / ROWS, cell % ROWS)) {
            let cell = GRID + row * ROWS + column;
            let above = (row > 0).then(|| cell - ROWS);
            let before = match (column, row) {
                (0, 2..) => Some(cell - ROWS - 1),
                (1.., _) => Some(cell - 1),
                _ => None,
            };
            let after: Vec<usize> = above.into_iter().chain(before).collect();
            if !after.is_empty() {
                begins(cell, &after);
            }
        }
        begins(EVENTS + 3, &[EVENTS, EVENTS + 2]);
        begins(EVENTS + 7, &[EVENTS + 4, EVENTS + 6]);
        begins(EVENTS + 8, &[EVENTS + 7]);
        for stretch in REDUCTION..REDUCTION + 3 {
            begins(stretch + 1, &[stretch]);
        }
    }
}

/// An entry point that libomp has from LLVM 16 on, built from those of the installed version.
const NEWER_LIBOMP: &str = r#"
#include <dlfcn.h>
typedef void micro(int *, int *, ...);
void __kmpc_serialized_parallel(void *, int);
void __kmpc_end_serialized_parallel(void *, int);
int __kmpc_global_thread_num(void *);
void __kmpc_fork_call_if(void *ident, int count, micro *function, int condition, void *argument)
{
    int thread = __kmpc_global_thread_num(ident), none = 0;
    if (condition) {
        /* libomp's own calls do not leave it. */
        void *libomp = dlopen("libomp.so.5", RTLD_NOW | RTLD_NOLOAD);
        void (*fork)(void *, int, micro *, ...) = (void (*)(void *, int, micro *, ...))dlsym(libomp, "__kmpc_fork_call");
        fork(ident, count, function, argument);
    } else {
        __kmpc_serialized_parallel(ident, thread);
        function(&thread, &none, argument);
        __kmpc_end_serialized_parallel(ident, thread);
    }
}
"#;

/// Stretch 0 before a region, 1 in its second thread, 2 after a barrier of it, 3 after the region, 4 in one of one
/// thread.
const CONDITIONAL: &str = r#"
#include <omp.h>
enum { CELLS = 64 * 512 };
long stretch[5][CELLS] __attribute__((aligned(4096)));
static struct { int reserved, flags, more[2]; const char *source; } ident = {0, 2, {0, 0}, ";a;b;0;0;;"};
void __kmpc_fork_call_if(void *, int, void (*)(int *, int *, ...), int, void *);
void __kmpc_barrier(void *, int);
static __attribute__((noinline)) void work(int number)
{
    for (long i = 0; i < CELLS; i++) stretch[number][i] = i;
}
static void region(int *thread, int *bound, int *first)
{
    (void)bound;
    if (*first == 1 && omp_get_thread_num() == 1) work(1);
    __kmpc_barrier(&ident, *thread);
    if (omp_get_thread_num() == 0) work(*first == 1 ? 2 : 4);
}
int main(void)
{
    int first = 1;
    omp_set_num_threads(2);
#pragma omp parallel
    omp_get_thread_num();
    work(0);
    __kmpc_fork_call_if(&ident, 1, (void (*)(int *, int *, ...))region, 1, &first);
    work(3);
    first = 4;
    __kmpc_fork_call_if(&ident, 1, (void (*)(int *, int *, ...))region, 0, &first);
    return 0;
}
"#;

#[test]
fn conditional_regions_of_newer_libraries_are_joined() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let library = dir.path().join("libnewer.so");
    ok(Command::new("clang")
        .args(["-shared", "-fPIC", "-fopenmp", "-o"])
        .arg(&library)
        .arg(write("newer.c", NEWER_LIBOMP)));
    let program = dir.path().join("conditional");
    ok(numaloc(&["cc", "--", "clang", "-O1", "-fopenmp", "-o"])
        .arg(&program)
        .arg(write("conditional.c", CONDITIONAL))
        .arg(&library));
    let when = stretches(&recorded(&program, 2, &[]));
    for (first, then) in when.iter().zip(&when[1..]) {
        let end = first.end + PAGE;
        assert!((end..end + 8 * PAGE).contains(&then.start), "{when:?}");
    }
}

#[test]
fn tasks_of_every_kind_do_what_they_did() {
    let dir = tempfile::tempdir().unwrap();
    let cases = ["g++", "clang++"]
        .map(|compiler| ["constructs.cpp", "detached.cpp"].map(|name| (compiler, name)));
    for (compiler, name) in chosen(cases.into_iter().flatten(), &[0, 3]) {
        let [bare, program] = [false, true]
            .map(|instrumented| build(dir.path(), compiler, instrumented, &source(name)));
        let expected = ok(&mut Command::new(bare));
        assert_eq!(ok(&mut Command::new(&program)), expected, "{compiler}");
        // libomp has libgomp's entry points too, but knows no events there.
        if name == "constructs.cpp" {
            let libomp = ok(Command::new("clang").arg("-print-file-name=libomp.so.5"));
            let mut under_libomp = Command::new(&program);
            let printed = ok(under_libomp.env("LD_PRELOAD", libomp.trim()));
            assert_eq!(printed, expected, "{compiler}");
        }
        for threads in chosen(["1", "6"], &[1]) {
            let folder = dir.path().join(format!("{name}.{compiler}.{threads}"));
            let mut record = numaloc(&["record", "--quiet", "-o"]);
            record.arg(&folder).arg("--").arg(&program);
            let printed = ok(record.env("OMP_NUM_THREADS", threads));
            assert_eq!(printed, expected, "{compiler}, {threads} threads");
        }
    }
}

/// Entry points by which no thread waits for another, or that only say which thread does something.
const UNJOINED: [&str; 32] = [
    "GOMP_loop_end_nowait",
    "GOMP_loop_guided_next",
    "GOMP_loop_ordered_dynamic_next",
    "GOMP_loop_ordered_dynamic_start",
    "GOMP_loop_start",
    "GOMP_loop_static_next",
    "GOMP_loop_ull_dynamic_next",
    "GOMP_single_start",
    "GOMP_task_reduction_remap",
    "GOMP_taskgroup_reduction_register",
    "GOMP_taskgroup_reduction_unregister",
    "GOMP_taskyield",
    "__kmpc_dispatch_fini_4",
    "__kmpc_dispatch_init_4",
    "__kmpc_dispatch_init_8u",
    "__kmpc_dispatch_next_4",
    "__kmpc_dispatch_next_8u",
    "__kmpc_doacross_fini",
    "__kmpc_end_masked",
    "__kmpc_end_master",
    "__kmpc_end_single",
    "__kmpc_for_static_fini",
    "__kmpc_for_static_init_4",
    "__kmpc_global_thread_num",
    "__kmpc_masked",
    "__kmpc_master",
    "__kmpc_omp_taskyield",
    "__kmpc_push_num_threads",
    "__kmpc_single",
    "__kmpc_task_reduction_get_th_data",
    "__kmpc_taskred_init",
    "omp_init_lock",
];

#[test]
fn every_call_of_the_compilers_is_recorded_or_makes_no_thread_wait() {
    let dir = tempfile::tempdir().unwrap();
    let names = |arguments: &[&str], file: &Path| -> Vec<String> {
        let listed = Command::new("nm").args(arguments).arg(file).output();
        let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
        let last = listed.lines().filter_map(|line| line.rsplit(' ').next());
        last.map(|name| name.split('@').next().unwrap().to_owned())
            .collect()
    };
    let numaloc = PathBuf::from(env!("CARGO_BIN_EXE_numaloc"));
    let library = numaloc.with_file_name("libnumaloc_instrument.a");
    let ours = names(&["--defined-only", "-g"], &library);
    let mut seen = 0;
    for (compiler, file) in [
        ("gcc", "arguments.c"),
        ("clang", "arguments.c"),
        ("gcc", "waits.c"),
        ("clang", "waits.c"),
        ("g++", "constructs.cpp"),
        ("clang++", "constructs.cpp"),
        ("clang++", "detached.cpp"),
    ] {
        let program = build(dir.path(), compiler, false, &source(file));
        for name in names(&["-u"], &program) {
            let waits = ["GOMP_", "__kmpc_", "omp_"]
                .iter()
                .any(|prefix| name.starts_with(prefix) && !name.starts_with("omp_get_"));
            if waits {
                let known = ours.contains(&name) || UNJOINED.contains(&name.as_str());
                assert!(known, "{compiler} calls {name}");
                seen += 1;
            }
        }
    }
    assert!(seen > 50, "{seen}");
}

#[test]
fn regions_get_their_arguments_however_many() {
    let dir = tempfile::tempdir().unwrap();
    let order = (0..40).fold(0, |order, n| order * 31 % 1009 + n);
    let sum = 4 * (1 + 3 + 6 + 10 + 15) + 8 * (56 + 66 + 1);
    let expected = format!("{sum} {order} {} 8 8.5\n", 40 + 8);
    for compiler in ["gcc", "clang"] {
        let program = build(dir.path(), compiler, true, &source("arguments.c"));
        assert_eq!(ok(&mut Command::new(&program)), expected, "{compiler}");
        let folder = dir.path().join(compiler);
        let mut record = numaloc(&["record", "--quiet", "-o"]);
        let printed = ok(record.arg(&folder).arg("--").arg(&program));
        assert_eq!(printed, expected, "{compiler}");
    }
}

/// Slices from the first to the last that hold more than 1 % of the events.
fn busy(slices: &[[f64; 3]]) -> Range<usize> {
    let total: f64 = slices.iter().map(|slice| slice[0]).sum();
    let busy = |slice: &[f64; 3]| slice[0] > 0.01 * total;
    let first = slices.iter().position(busy).unwrap();
    first..slices.iter().rposition(busy).unwrap() + 1
}

#[test]
fn two_phases_have_the_time_of_two_threads_with_sixty_four_on_a_loaded_host() {
    let dir = tempfile::tempdir().unwrap();
    let two_phase = root().join("workloads/two_phase.c");
    for instrumented in chosen([false, true], &[1]) {
        let program = build(dir.path(), "clang", instrumented, &two_phase);
        let arguments = ["512", "120"];
        let two = recorded(&program, 2, &arguments);
        let load = Load::start();
        let many = recorded(&program, 64, &arguments);
        drop(load);
        let paths = many.threads().iter().map(|thread| thread.path.clone());
        let expected = std::iter::once("0".to_owned()).chain((1..64).map(|n| format!("0.{n}")));
        assert!(paths.eq(expected), "instrumented: {instrumented}");

        // Accesses of the run-time library are not communication.
        let (few_slices, slices) = (by_slice(&two), by_slice(&many));
        let total = |slices: &[[f64; 3]]| -> f64 { slices.iter().map(|slice| slice[0]).sum() };
        let ratio = total(&slices) / total(&few_slices);
        assert!(
            (31.5..32.8).contains(&ratio),
            "instrumented: {instrumented}, {ratio}"
        );
        let near = |i: usize, j: usize| i ^ 1 == j || (i + 32) % 64 == j;
        let near = share(&matrix(&program.with_extension("64.numaloc")), near);
        assert!(near > 0.98, "instrumented: {instrumented}, {near}");

        // As long as two threads take, but for a slice at each end.
        let length = |profile: &Profile, at: &Range<usize>| {
            (profile.slices()[at.end - 1].end - profile.slices()[at.start].start) as f64
        };
        let (few, at) = (busy(&few_slices), busy(&slices));
        let (short, long) = (length(&two, &few), length(&many, &at));
        let slice = (many.slices()[0].end - many.slices()[0].start) as f64;
        assert!(
            (long - short).abs() <= 2.0 * slice,
            "instrumented: {instrumented}, {short} and {long}"
        );

        // Neighbours, then distant pairs from the middle on, and one slice at most that has both: more
        // than 2 % of what a whole slice has, for the reduction of 64 threads at the end is between
        // neighbours, too, and its slice may be cut short.
        let border = at
            .clone()
            .find(|&at| slices[at][2] > slices[at][1])
            .unwrap();
        let middle = (at.start + at.end) / 2;
        assert!(border.abs_diff(middle) <= 1, "{border} of {at:?}");
        let whole = at.clone().map(|at| slices[at][0]).fold(0.0, f64::max);
        let wrong = |at: usize| slices[at][if at < border { 2 } else { 1 }];
        let mixed: Vec<usize> = at.filter(|&at| wrong(at) > 0.02 * whole).collect();
        assert!(mixed.len() <= 1, "{mixed:?} of {slices:?}");
    }
}
