//! Results of the engine beyond counts: false sharing, sampled matrices with their errors, strict write-read, many
//! threads.
//!
//! Needs qemu-x86_64, gcc and the plugin (`cargo build --workspace` first).

use std::path::Path;

use crate::support::{compile, correlation, matrix, numaloc, ok, workload};
use numaloc_model::pages::Page;
use numaloc_model::profile::{Amount, ObjectKind};
use numaloc_model::{Layer, Profile};

fn recorded(folder: &Path, options: &[&str], command: &[&str]) -> Profile {
    let mut recorder = numaloc(&["record", "--quiet", "--force", "-o"]);
    recorder.arg(folder).args(options).arg("--").args(command);
    ok(recorder.env("OMP_NUM_THREADS", "8"));
    numaloc_formats::profile::read(folder).unwrap()
}

/// Two threads alternate for 1,000 rounds: each reads a counter, adds one and writes its own counter.
/// `one_line`: both counters in one line; `padded`: a line each; `shared`: each reads what the other has written.
const COUNTERS: &str = r#"
#include <pthread.h>
struct { _Alignas(64) volatile long counter[16]; } data = {{1}};
static pthread_barrier_t barrier;
static int other, stride;
static void *work(void *argument)
{
    int me = argument != 0;
    for (int round = 0; round < 1000; round++)
        for (int turn = 0; turn < 2; turn++) {
            if (turn == me)
                data.counter[me * stride] = data.counter[(other ? !me : me) * stride] + 1;
            pthread_barrier_wait(&barrier);
        }
    return 0;
}
int main(int argc, char **argv)
{
    stride = argv[1][0] == 'p' ? 8 : 1;
    other = argv[1][0] == 's';
    pthread_barrier_init(&barrier, 0, 2);
    pthread_t thread;
    pthread_create(&thread, 0, work, &thread);
    work(0);
    pthread_join(thread, 0);
    return 0;
}
"#;

#[test]
fn false_and_true_sharing_are_distinguished_and_the_object_is_named() {
    let dir = tempfile::tempdir().unwrap();
    for instrumented in [false, true] {
        let program = compile(dir.path(), "counters", COUNTERS, instrumented);
        let program = program.to_str().unwrap();
        let folder = dir.path().join("c.numaloc");
        // (events through the counters' line, false ones among them)
        let counts = |case: &str| {
            let profile = recorded(&folder, &[], &[program, case]);
            let events = |layer| profile.matrix(layer, Amount::Events).unwrap();
            let all: f64 = events(Layer::WriteRead).to_dense().iter().sum();
            let disjoint: f64 = events(Layer::FalseSharing).to_dense().iter().sum();
            assert!(disjoint <= all);
            let lines: Vec<_> = profile
                .shared_lines()
                .iter()
                .filter(|line| line.events > 1500)
                .filter_map(|line| Some((profile.object(line.object?), line)))
                .filter(|(object, _)| {
                    object.kind == ObjectKind::Static && object.name.ends_with("counters:.data")
                })
                .collect();
            match lines[..] {
                [] => (0, 0),
                [(object, line)] => {
                    assert!(line.object_offset < object.size);
                    (line.events, line.false_events)
                }
                _ => panic!("{lines:?}"),
            }
        };
        // Each of 2,000 turns reads the line the other wrote last; the first events on it are not classified.
        let (events, disjoint) = counts("one_line");
        assert!((1995..=2001).contains(&events), "{events}");
        assert!(
            (1990..=events).contains(&disjoint),
            "{disjoint} of {events}"
        );
        assert_eq!(counts("padded"), (0, 0));
        let (events, disjoint) = counts("shared");
        assert!((1995..=2001).contains(&events), "{events}");
        assert_eq!(disjoint, 0);
    }
}

#[test]
fn a_sampled_matrix_has_the_pattern_and_says_its_errors() {
    let dir = tempfile::tempdir().unwrap();
    let (exact, sampled) = (dir.path().join("e.numaloc"), dir.path().join("s.numaloc"));
    let ring = workload("ring");
    let command = [ring.to_str().unwrap(), "2048", "60"];
    recorded(&exact, &[], &command);
    let profile = recorded(
        &sampled,
        &["--sample", "5%", "--sample-by", "lines"],
        &command,
    );
    let (full, estimate) = (matrix(&exact), matrix(&sampled));
    let same = correlation(&full, &estimate);
    assert!(same >= 0.98, "correlation is {same}");
    // A twentieth of the lines; with how many of the accesses depends on where the stacks lie.
    assert!(
        (0.02..0.9).contains(&profile.meta().sampled),
        "{}",
        profile.meta().sampled
    );
    assert!(
        profile
            .meta()
            .notes
            .iter()
            .any(|note| note.starts_with("sampled by lines: 5.00 %"))
    );
    // Every cell has an error; those of the ring are small, and the truth lies within three of them.
    let written = profile.matrix(Layer::WriteRead, Amount::Events).unwrap();
    for (i, row) in full.iter().enumerate() {
        for (j, truth) in row.iter().enumerate() {
            let found = profile.cell_errors().iter().find(|error| {
                error.layer == Layer::WriteRead && (error.src.index(), error.dst.index()) == (i, j)
            });
            assert_eq!(found.is_some(), written.get(i, j) > 0.0, "({i}, {j})");
            if let Some(error) = found.filter(|_| (i + 1) % 8 == j || (j + 1) % 8 == i) {
                assert!(error.relative_error < 0.5, "{error:?}");
                let off = (estimate[i][j] - truth).abs();
                assert!(
                    off <= 3.0 * error.relative_error * estimate[i][j],
                    "{error:?}: {off}"
                );
            }
        }
    }
    // Numbers of accesses stay exact.
    let accesses =
        |profile: &Profile| -> u64 { profile.threads().iter().map(|t| t.accesses).sum() };
    let all = numaloc_formats::profile::read(&exact).unwrap();
    let (a, b) = (accesses(&all) as f64, accesses(&profile) as f64);
    assert!((a - b).abs() < 0.01 * a, "{a} {b}");
}

/// Adds up a table, 2 MiB, and counts every word in one busy line: the first of an array that is watched at a share of
/// 5 % (`w`), or that is not. Their addresses decide this, by the rule of docs/tracing.md.
const BUSY: &str = r#"
#include <stdint.h>
static _Alignas(4096) volatile uint64_t table[1 << 18];
static _Alignas(4096) volatile uint64_t busy[512][8];
int main(int argc, char **argv)
{
    int line = 0, watched = argc > 1 && argv[1][0] == 'w';
    while (((uintptr_t)busy[line] / 64 * 0x9e3779b97f4a7c15u < UINT64_MAX / 20) != watched)
        line++;
    for (int round = 0; round < 4; round++)
        for (long i = 0; i < 1 << 18; i++) {
            (void)table[i];
            busy[line][0]++;
        }
    return 0;
}
"#;

#[test]
fn estimates_do_not_depend_on_whether_the_busiest_line_is_watched() {
    let dir = tempfile::tempdir().unwrap();
    for instrumented in [false, true] {
        let program = compile(dir.path(), "busy", BUSY, instrumented);
        for (case, seen) in [("watched", 0.6..0.8), ("unwatched", 0.01..0.02)] {
            let profile = recorded(
                &dir.path().join("b.numaloc"),
                &["--sample", "5%", "--sample-by", "lines"],
                &[program.to_str().unwrap(), case],
            );
            let share = profile.meta().sampled;
            assert!(seen.contains(&share), "{case}: {share}");
            // 2^20 words of the table, on 512 pages, each of 2,048 accesses; the busy line has twice as many as all of
            // them.
            let each = f64::from(4 * 512);
            let thread = &profile.threads()[0];
            let words = f64::from(1 << 20);
            let pages = profile.pages().pages();
            let amount = |page: &Page| {
                let of = profile.pages().accesses(page);
                of.iter().map(|a| a.reads + a.writes).sum::<u64>() as f64
            };
            let all: f64 = pages.iter().map(amount).sum();
            // Lines of the loader and the C library are as many as to be watched by chance.
            let of_program = |page: &&Page| {
                let object = page.object.map(|object| profile.object(object));
                object.is_some_and(|object| object.name == "busy:.bss")
            };
            let mut amounts: Vec<f64> = pages.iter().filter(of_program).map(amount).collect();
            amounts.sort_by(f64::total_cmp);
            assert!(all <= 1.001 * thread.accesses as f64, "{case}: {all}");
            let busy = amounts.pop_if(|most| *most > 100.0 * each);
            assert_eq!(busy.is_some(), case == "watched");
            if let Some(busy) = busy {
                assert!((busy / (2.0 * words) - 1.0).abs() < 0.05, "{busy}");
            }
            let table: f64 = amounts.iter().sum();
            assert!((table / words - 1.0).abs() < 0.05, "{case}: {table}");
            // All accesses have eight bytes.
            let bytes = (thread.read_bytes + thread.write_bytes) as f64;
            let size = bytes / thread.accesses as f64;
            assert!((size / 8.0 - 1.0).abs() < 0.05, "{case}: {size}");
        }
    }
}

#[test]
fn bursts_look_at_their_share() {
    let dir = tempfile::tempdir().unwrap();
    let pairs = workload("pairs");
    let profile = recorded(
        &dir.path().join("b.numaloc"),
        &["--sample", "0.05", "--sample-by", "bursts"],
        &[pairs.to_str().unwrap(), "2048", "60"],
    );
    assert!(
        (0.04..0.06).contains(&profile.meta().sampled),
        "{}",
        profile.meta().sampled
    );
    let found = profile.matrix(Layer::WriteRead, Amount::Events).unwrap();
    let partner: f64 = (0..8).map(|i| found.get(i, i ^ 1)).sum();
    let all: f64 = found.to_dense().iter().sum();
    assert!(partner > 0.9 * all, "{partner} of {all}");
    assert!(!profile.cell_errors().is_empty());
}

/// One thread: fills a table, and adds it up again and again, now and then into an atomic sum.
const TABLE: &str = r#"
#include <stdatomic.h>
#include <stdio.h>
static volatile long table[1 << 16];
static atomic_long sum;
int main(void)
{
    for (int round = 0; round < 40; round++)
        for (long i = 0; i < 1 << 16; i++) {
            table[i] += i;
            if (i % 1024 == 0)
                sum += table[i];
        }
    printf("%ld\n", sum);
    return 0;
}
"#;

#[test]
fn sampling_an_instrumented_program_still_counts_every_access() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "table", TABLE, true);
    let recorded = |options: &[&str]| {
        let folder = dir.path().join("t.numaloc");
        let profile = recorded(&folder, options, &[program.to_str().unwrap()]);
        (
            profile.threads()[0].accesses,
            profile.pages().total(),
            profile.meta().sampled,
        )
    };
    let (accesses, on_pages, all) = recorded(&[]);
    assert_eq!((accesses, all), (on_pages, 1.0));
    assert!(accesses > 40 * 2 * (1 << 16));
    for way in ["lines", "bursts"] {
        let (counted, estimated, share) = recorded(&["--sample", "5%", "--sample-by", way]);
        assert_eq!(counted, accesses, "{way}");
        assert!((0.045..0.055).contains(&share), "{way}: {share}");
        let off = estimated as f64 / on_pages as f64 - 1.0;
        assert!(off.abs() < 0.02, "{way}: {off}");
    }
}

/// Thread 0 writes 64 lines, then threads 1 and 2 read them one after the other.
const READERS: &str = r#"
#include <pthread.h>
static _Alignas(64) volatile long data[8 * 64];
static void *reads(void *unused)
{
    for (int i = 0; i < 64; i++) (void)data[i * 8];
    return unused;
}
int main(void)
{
    for (int i = 0; i < 64; i++) data[i * 8] = i;
    for (int t = 0; t < 2; t++) {
        pthread_t thread;
        pthread_create(&thread, 0, reads, 0);
        pthread_join(thread, 0);
    }
    return 0;
}
"#;

#[test]
fn to_the_letter_only_the_next_access_is_communication() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "readers", READERS, true);
    let folder = dir.path().join("r.numaloc");
    let read = |options: &[&str]| {
        let profile = recorded(&folder, options, &[program.to_str().unwrap()]);
        let found = profile.matrix(Layer::WriteRead, Amount::Events).unwrap();
        (found.get(0, 1), found.get(0, 2))
    };
    assert_eq!(read(&[]), (64.0, 64.0));
    assert_eq!(read(&["--strict-consecutive"]), (64.0, 0.0));
}

#[test]
fn sampling_what_cannot_be_sampled_is_refused() {
    for (options, says) in [
        (&["--sample", "0"][..], "a share from 0.01% to 100%"),
        (&["--sample", "150%"], "a share from 0.01% to 100%"),
        (
            &["--sample", "5%", "--layers", "shared_line"],
            "--layers write_read",
        ),
        (
            &["--sample", "5%", "--frontend", "perf"],
            "--frontend native, qemu or instrument",
        ),
    ] {
        let mut command = numaloc(&["record"]);
        let output = command
            .args(options)
            .args(["--", "/bin/true"])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(stderr.contains(says), "{options:?}: {stderr}");
    }
}

/// Two threads count in 16,384 pages, one atomic word in each, then one writes and the other reads 100 lines.
const PAGES: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
static char *pages;
static volatile long line[800];
static void *count(void *unused)
{
    for (int round = 0; round < 20; round++)
        for (long page = 0; page < 16384; page++)
            __atomic_fetch_add((long *)(pages + page * 4096), 1, __ATOMIC_RELAXED);
    return unused;
}
int main(void)
{
    pthread_t thread;
    pages = aligned_alloc(4096, 16384 * 4096L);
    for (long page = 0; page < 16384; page++) *(long *)(pages + page * 4096) = 0;
    pthread_create(&thread, 0, count, 0);
    count(0);
    pthread_join(thread, 0);
    long sum = 0;
    for (long page = 0; page < 16384; page++) sum += *(long *)(pages + page * 4096);
    printf("%ld\n", sum);
    return 0;
}
"#;

#[test]
fn at_the_memory_bound_detail_goes_in_order_and_the_profile_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "pages", PAGES, true);
    let folder = dir.path().join("p.numaloc");
    let run = |memory: &str| {
        let mut recorder = numaloc(&["record", "--quiet", "--force", "--memory", memory, "-o"]);
        let output = ok(recorder.arg(&folder).arg("--").arg(&program));
        assert_eq!(output, format!("{}\n", 2 * 20 * 16384));
        numaloc_formats::profile::read(&folder).unwrap()
    };
    let profile = run("256M");
    assert!(
        profile.meta().complete && profile.meta().notes.is_empty(),
        "{:?}",
        profile.meta().notes
    );
    // An atomic in each page takes 8 KiB of clocks for each 4 KiB page: 128 MiB. Without them the rest fits.
    let profile = run("16M");
    assert!(!profile.meta().complete);
    let noted = |what: &str| profile.meta().notes.iter().any(|note| note.contains(what));
    assert!(
        noted("--memory 16M allow") && noted("true and false sharing are not distinguished"),
        "{:?}",
        profile.meta().notes
    );
    assert!(noted("share 2^20 clocks"), "{:?}", profile.meta().notes);
    let found = profile.matrix(Layer::WriteRead, Amount::Events).unwrap();
    assert!(found.get(0, 1) >= 16384.0, "{}", found.get(0, 1));
}

/// Short threads one after the other; each reads what the one before wrote.
const CHAIN: &str = r#"
#include <pthread.h>
#include <stdlib.h>
static _Alignas(64) volatile long word[8];
static void *work(void *unused)
{
    word[0] = word[0] + 1;
    return unused;
}
int main(int argc, char **argv)
{
    long threads = argc > 1 ? atol(argv[1]) : 0;
    for (long at = 0; at < threads; at++) {
        pthread_t thread;
        if (pthread_create(&thread, 0, work, 0)) return 1;
        pthread_join(thread, 0);
    }
    return word[0] != threads;
}
"#;

#[test]
fn short_threads_by_the_thousand_keep_their_names() {
    let dir = tempfile::tempdir().unwrap();
    for (instrumented, threads) in [(true, 5000usize), (false, 1000)] {
        let program = compile(dir.path(), "chain", CHAIN, instrumented);
        let profile = recorded(
            &dir.path().join("t.numaloc"),
            &[],
            &[program.to_str().unwrap(), &threads.to_string()],
        );
        assert_eq!(profile.threads().len(), threads + 1);
        let found = profile.matrix(Layer::WriteRead, Amount::Events).unwrap();
        for thread in 2..=threads {
            assert!(found.get(thread - 1, thread) >= 1.0, "{thread}");
        }
    }
}
