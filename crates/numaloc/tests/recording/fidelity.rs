//! Recordings do not depend on the host: matrices and times are the program's, whatever the number of threads per core
//! and the load of the machine.
//!
//! `make bench-fidelity` does this for every workload. Needs qemu-x86_64 and the plugin (`cargo build --workspace`
//! first).

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use crate::support::{
    Load, by_slice, chosen, compile, matrix, numaloc, ok, record, stretches, workload,
};
use numaloc_analysis::concurrency_groups;
use numaloc_model::profile::Amount;
use numaloc_model::{Layer, Profile};

/// Held by tests that load the machine, so that one test's idle recording does not run under another's load.
static MACHINE: Mutex<()> = Mutex::new(());

/// Records a workload, on one core if `pinned`.
fn recorded(folder: &Path, threads: u32, pinned: bool, name: &str, arguments: [&str; 2]) {
    let recorder = numaloc(&["record", "--quiet", "--force", "-o"]);
    let mut command = Command::new(if pinned {
        "taskset".as_ref()
    } else {
        recorder.get_program()
    });
    if pinned {
        // The first core that this test may use.
        let mask = ok(Command::new("taskset").args(["-cp", &std::process::id().to_string()]));
        let list = mask.rsplit(' ').next().unwrap().trim();
        let first = list.split(['-', ',']).next().unwrap();
        command.args(["-c", first]).arg(recorder.get_program());
    }
    ok(command
        .args(recorder.get_args())
        .arg(folder)
        .arg("--")
        .arg(workload(name))
        .args(arguments)
        .env("OMP_NUM_THREADS", threads.to_string()));
}

#[test]
fn load_and_pinning_do_not_show_in_a_matrix() {
    let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("p.numaloc");
    let workloads = [("pairs", ["512", "40"]), ("stencil2d", ["256", "20"])];
    for (name, arguments) in chosen(workloads, &[1]) {
        let read = |threads, pinned| {
            recorded(&folder, threads, pinned, name, arguments);
            matrix(&folder)
        };
        let (few, many) = (read(16, false), read(64, false));
        let busy = Load::start();
        let others = [
            (&few, read(16, false), "loaded"),
            (&few, read(16, true), "loaded, on one core"),
        ];
        drop(busy);
        let pinned = [(&many, read(64, true), "64 threads on one core")];
        for (expected, found, condition) in others.into_iter().chain(pinned) {
            let total: f64 = expected.iter().flatten().sum();
            assert!(total > 10_000.0);
            let largest = expected.iter().flatten().copied().fold(0.0, f64::max);
            // As make/fidelity: with many threads no cell has 1 % of the traffic, so all count together, and the large
            // ones each.
            let mut apart = 0.0;
            for (i, row) in expected.iter().enumerate() {
                for (j, &cell) in row.iter().enumerate() {
                    let off = (found[i][j] - cell).abs();
                    apart += off / 2.0;
                    let large = cell.max(found[i][j]) >= largest / 4.0;
                    assert!(
                        !large || off <= (0.01 * cell).max(2.0),
                        "{name}, {condition}: ({i}, {j}) had {cell} events, then {}",
                        found[i][j]
                    );
                }
            }
            assert!(
                apart <= 0.01 * total,
                "{name}, {condition}: {apart} of {total} events differ"
            );
        }
    }
}

/// When all threads had begun, and when the last one ended.
fn parallel_part(profile: &Profile) -> (f64, f64) {
    let start = profile.threads().iter().map(|thread| thread.start).max();
    let end = profile.threads().iter().map(|thread| thread.end).max();
    (start.unwrap() as f64, end.unwrap() as f64)
}

/// At which share of the parallel part each tenth of the events had happened.
fn tenths(profile: &Profile) -> Vec<f64> {
    let (start, end) = parallel_part(profile);
    let slices = by_slice(profile);
    let total: f64 = slices.iter().map(|slice| slice[0]).sum();
    (1..10)
        .map(|tenth| {
            let mut wanted = total * f64::from(tenth) / 10.0;
            let at = slices.iter().position(|slice| {
                wanted -= slice[0];
                wanted <= 0.0
            });
            let at = at.unwrap();
            let (slice, events) = (profile.slices()[at], slices[at][0]);
            let within = (slice.end - slice.start) as f64 * (wanted + events) / events;
            (slice.start as f64 + within - start) / (end - start)
        })
        .collect()
}

#[test]
fn sixty_four_threads_on_a_loaded_host_have_the_time_of_two() {
    let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let read = |threads, name: &str| {
        let folder = dir.path().join(name);
        recorded(&folder, threads, false, "two_phase", ["512", "120"]);
        numaloc_formats::profile::read(&folder).unwrap()
    };
    let two = read(2, "two.numaloc");
    let busy = Load::start();
    let many = read(64, "many.numaloc");
    drop(busy);
    assert_eq!((two.threads().len(), many.threads().len()), (2, 64));

    // Barriers: every thread ends when the others do, and the run is as long as that of two.
    let ends: Vec<u64> = many.threads().iter().map(|thread| thread.end).collect();
    let length = |profile| {
        let (start, end) = parallel_part(profile);
        end - start
    };
    let (short, long) = (length(&two), length(&many));
    let apart = ends.iter().max().unwrap() - ends.iter().min().unwrap();
    assert!((apart as f64) < 0.02 * long, "{ends:?}");
    assert!(
        (0.98 * short..1.02 * short).contains(&long),
        "{short} and {long}"
    );

    // Slices: the same part of the communication has happened at the same time.
    let (a, b) = (tenths(&two), tenths(&many));
    let off = a
        .iter()
        .zip(&b)
        .map(|(x, y)| (x - y).abs())
        .fold(0.0, f64::max);
    assert!(off < 0.03, "{a:?}, {b:?}");
    let total = |profile| -> f64 { by_slice(profile).iter().map(|slice| slice[0]).sum() };
    let ratio = total(&many) / total(&two);
    assert!((31.5..32.5).contains(&ratio), "{ratio}");

    // Phases: neighbours, then distant pairs, and one slice at most that has both.
    let slices = by_slice(&many);
    let border = slices
        .iter()
        .position(|slice| slice[2] > slice[1] && slice[2] > 1000.0)
        .unwrap();
    let mixed = |&at: &usize| {
        let wrong = if at < border {
            slices[at][2]
        } else {
            slices[at][1]
        };
        wrong > 0.01 * slices[at][0] && wrong > 100.0
    };
    let mixed: Vec<usize> = (0..slices.len()).filter(mixed).collect();
    assert!(mixed.len() <= 1, "{mixed:?} of {slices:?}");

    // Concurrency: communication is steady, so only the pattern divides it: simultaneous communication is of one
    // pattern. The start, when the first thread creates the others, is a few hundred events.
    let clusters = concurrency_groups(&many, Layer::WriteRead).clusters;
    let mut seen = [0, 0];
    for cluster in &clusters {
        let range = cluster.first.0..cluster.last.0 + 1;
        let found = many
            .matrix_of_slices(Layer::WriteRead, Amount::Events, range)
            .unwrap();
        if found.total() < 1000.0 {
            continue;
        }
        let share = |partner: fn(usize) -> usize| {
            (0..64).map(|i| found.get(i, partner(i))).sum::<f64>() / found.total()
        };
        let (neighbours, distant) = (share(|i| i ^ 1), share(|i| (i + 32) % 64));
        assert!(
            neighbours.max(distant) > 0.9,
            "{cluster:?}: {neighbours} and {distant}"
        );
        seen[usize::from(distant > neighbours)] += 1;
    }
    assert_eq!(seen, [1, 1], "{clusters:?}, border {border}");
}

/// A thread that is late does what `SHARE` says, then one that is early. Each works through 64 pages, one before, one
/// after.
const TURNS: &str = r#"
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
enum { CELLS = 64 * 512 };
long stretch[2][CELLS] __attribute__((aligned(4096)));
SHARE
static __attribute__((noinline)) void work(int number)
{
    for (long i = 0; i < CELLS; i++) stretch[number][i] = i;
}
static void *late(void *argument)
{
    work(0);
    share(1);
    return argument;
}
int main(void)
{
    pthread_t thread;
    pthread_create(&thread, 0, late, 0);
    usleep(300000);
    share(0);
    work(1);
    pthread_join(thread, 0);
    return 0;
}
"#;

/// Both threads of [`TURNS`] work at the same time, whichever came first to what they share.
fn have_the_same_time(name: &str, share: &str) {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), name, &TURNS.replace("SHARE", share), false);
    let folder = dir.path().join("p.numaloc");
    record(&folder, 2, &[program.to_str().unwrap()]);
    let profile = numaloc_formats::profile::read(&folder).unwrap();
    let when = stretches(&profile);
    assert!(when[1].start < when[0].start + 4096, "{when:?}");
}

#[test]
fn who_binds_a_function_first_does_not_show_in_time() {
    // With libgomp there, plain stores of run-time code carry clocks.
    let share = r#"
#include <dlfcn.h>
static __attribute__((constructor)) void openmp(void) { if (!dlopen("libgomp.so.1", RTLD_NOW)) abort(); }
static __attribute__((noinline)) void share(int late)
{
    unsigned seed = 3;
    if (late) stretch[0][1] += atol("12");
    else stretch[0][2] += rand_r(&seed) + strtoul("7", 0, 10);
}"#;
    have_the_same_time("binding", share);
}

#[test]
fn who_allocates_first_does_not_show_in_time() {
    // The lock of the C library's only arena: threads do not cache blocks of this size.
    let share = r#"
static __attribute__((constructor)) void one_arena(void) { mallopt(M_ARENA_MAX, 1); }
static void *volatile block;
static void share(int late)
{
    (void)late;
    block = malloc(5000);
    free(block);
}"#;
    have_the_same_time("allocating", share);
}
