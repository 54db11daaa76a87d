//! `record --trace` and `show --trace` on programs whose traffic is known.
//!
//! Needs qemu-x86_64, gcc and the plugin (`cargo build --workspace` first).

use crate::support;
use std::path::Path;
use std::process::Command;

use crate::support::{chosen, compile, fails, numaloc, ok};
use serde_json::Value;

fn json(command: &mut Command) -> Value {
    serde_json::from_str(&ok(command)).unwrap()
}

/// The access trace of a profile, and the profile, as `show --json` gives them.
fn shown(profile: &Path, options: &[&str]) -> (Value, Value) {
    let trace = json(
        numaloc(&["show", "--json", "--trace"])
            .args(options)
            .arg(profile),
    );
    (trace, json(numaloc(&["show", "--json"]).arg(profile)))
}

/// Two threads, one after the other: each reads 8 MiB of its own three times, and the second then what the first has
/// written.
const STREAMS: &str = r#"
#include <pthread.h>
#define WORDS (8 << 17)
static long data[2][WORDS], *shared;
static long walk(long *from, int times)
{
    long sum = 0;
    for (int time = 0; time < times; time++)
        for (long at = 0; at < WORDS; at++)
            sum += ((volatile long *)from)[at];
    return sum;
}
static void *work(void *argument)
{
    return (void *)walk(data[(long)argument], 3);
}
int main(void)
{
    pthread_t thread;
    for (long at = 0; at < 2; at++) {
        pthread_create(&thread, 0, work, (void *)at);
        pthread_join(thread, 0);
    }
    return 0;
}
"#;

#[test]
fn a_stream_is_fetched_once_or_every_time_as_the_last_level_cache_decides() {
    let dir = tempfile::tempdir().unwrap();
    for instrumented in [false, true] {
        let program = compile(dir.path(), "streams", STREAMS, instrumented);
        let profile = dir.path().join("p.numaloc");
        ok(numaloc(&["record", "--quiet", "--force", "--trace", "-o"])
            .arg(&profile)
            .arg("--")
            .arg(&program));
        let (trace, whole) = shown(&profile, &[]);
        assert_eq!(trace["complete"], true);
        // The work of all records adds up to all accesses.
        for (traced, thread) in trace["threads"]
            .as_array()
            .unwrap()
            .iter()
            .zip(whole["threads"].as_array().unwrap())
        {
            assert_eq!(traced["path"], thread["path"]);
            assert_eq!(traced["trace"]["accesses"], thread["accesses"]);
            assert_eq!(traced["cache_model"]["dram_bytes"], thread["dram_bytes"]);
        }
        let near = |value: &Value, expected: u64| {
            let value = value.as_u64().unwrap();
            assert!(
                value.abs_diff(expected) <= expected / 50 + 400,
                "{value} is not {expected}"
            );
        };
        // 8 MiB are 131,072 lines: three times through private caches of 1 MiB, once from DRAM with 32 MiB behind them.
        let lines = (8 << 20) / 64;
        for thread in &trace["threads"].as_array().unwrap()[1..] {
            near(&thread["trace"]["records"], 3 * lines);
            near(&thread["cache_model"]["dram_reads"], lines);
            near(&thread["cache_model"]["llc_hits"], 2 * lines);
        }
        let source = whole["dram_source"].as_str().unwrap();
        assert!(
            source.starts_with("cache model (private caches 32K/8 and 1M/16"),
            "{source}"
        );
        assert!(whole["metrics"]["dram_ratio"].as_f64().unwrap() > 0.3);
        // Loads that missed all caches stand in the profile page by page, and `marathe` places pages by them.
        let read = numaloc_formats::profile::read(&profile).unwrap();
        let slow = read.slow_loads().unwrap();
        assert!(
            slow.source.starts_with("loads that miss all caches"),
            "{}",
            slow.source
        );
        for thread in 1..3 {
            let rows = slow.rows.iter().filter(|row| row.thread.index() == thread);
            near(&rows.map(|row| row.loads).sum::<u64>().into(), lines);
        }
        let said = numaloc(&[
            "plan",
            "--anyway",
            "--machine",
            "numa:2 core:2 pu:1",
            "--pages",
            "marathe",
        ])
        .arg("--force")
        .arg("-o")
        .arg(dir.path().join("plan.json"))
        .arg(&profile)
        .output()
        .unwrap();
        let said = [said.stdout, said.stderr].concat();
        let said = String::from_utf8_lossy(&said)
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        assert!(
            said.contains("marathe goes by long-latency loads: loads that miss"),
            "{said}"
        );
        // A last level of 4 MiB holds nothing until it is read again.
        let (small, _) = shown(&profile, &["--llc", "4M/16"]);
        near(&small["threads"][1]["cache_model"]["dram_reads"], 3 * lines);
        let text = ok(numaloc(&["show", "--trace"]).arg(&profile));
        assert!(text.contains("DRAM-to-memory ratio"), "{text}");
        let longest = text.lines().map(|line| line.chars().count()).max();
        assert!(longest <= Some(80), "{text}");
    }
}

/// Threads add to a counter under a lock; the first waits for all.
const LOCKED: &str = r#"
#include <pthread.h>
#include <stdio.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t barrier;
static long counter;
static void *work(void *argument)
{
    (void)argument;
    pthread_barrier_wait(&barrier);
    for (int at = 0; at < 100; at++) {
        pthread_mutex_lock(&lock);
        counter++;
        pthread_mutex_unlock(&lock);
    }
    return 0;
}
int main(void)
{
    pthread_t threads[3];
    pthread_barrier_init(&barrier, 0, 3);
    for (int at = 0; at < 3; at++) pthread_create(&threads[at], 0, work, 0);
    for (int at = 0; at < 3; at++) pthread_join(threads[at], 0);
    printf("%ld\n", counter);
    return 0;
}
"#;

#[test]
fn threads_locks_barriers_and_joins_are_recorded() {
    let dir = tempfile::tempdir().unwrap();
    for instrumented in [false, true] {
        let program = compile(dir.path(), "locked", LOCKED, instrumented);
        let profile = dir.path().join("p.numaloc");
        let said = ok(numaloc(&["record", "--quiet", "--force", "--trace", "-o"])
            .arg(&profile)
            .arg("--")
            .arg(&program));
        assert_eq!(said, "300\n");
        let (trace, _) = shown(&profile, &[]);
        let records = &trace["records"];
        assert_eq!(records["create"], 3);
        let count = |kind: &str| records[kind].as_u64().unwrap();
        // Each thread: a barrier and an end, and locks as often as they changed hands at least; joins.
        assert!(count("release") >= 6, "{records}");
        assert!(count("acquire") >= 3 + 3, "{records}");
    }
}

#[test]
fn the_limit_cuts_the_trace_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "streams", STREAMS, false);
    let profile = dir.path().join("p.numaloc");
    let mut record = numaloc(&["record", "--quiet", "--trace", "--trace-limit", "2K", "-o"]);
    ok(record.arg(&profile).arg("--").arg(&program));
    let (trace, whole) = shown(&profile, &[]);
    assert_eq!(trace["complete"], false);
    let note = "the access trace of process 0 is cut short: the limit of 2048 bytes was reached";
    assert_eq!(trace["notes"][0], note);
    assert!(
        whole["notes"].as_array().unwrap().iter().any(|n| n == note),
        "{whole}"
    );
    // The profile holds the whole run; a part of the DRAM accesses would be a wrong number.
    assert_eq!(whole["complete"], true);
    let ratio = whole["metrics"].get("dram_ratio");
    assert!(
        ratio.is_some_and(Value::is_null),
        "known and null: {ratio:?}"
    );
    assert!(whole["threads"][2]["accesses"].as_u64().unwrap() > 3 << 20);
    assert!(whole["threads"][2]["dram_bytes"].is_null());
    let size = std::fs::metadata(profile.join("accesses/0.trace"))
        .unwrap()
        .len();
    assert!(size <= 2048 + 100, "{size}");
}

/// A child process works too, then the parent kills itself.
const KILLED: &str = r#"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile long data[4 << 17];
static void work(void)
{
    for (int time = 0; time < 4; time++)
        for (long at = 0; at < 4 << 17; at++)
            data[at]++;
}
int main(void)
{
    if (fork() == 0) {
        work();
        return 0;
    }
    wait(0);
    work();
    kill(getpid(), SIGKILL);
}
"#;

#[test]
fn each_process_has_a_trace_and_one_that_is_killed_has_what_it_sent() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "killed", KILLED, false);
    let profile = dir.path().join("p.numaloc");
    let mut record = numaloc(&["record", "--quiet", "--trace", "-o"]);
    let status = record
        .arg(&profile)
        .arg("--")
        .arg(&program)
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(128 + 9));
    let (trace, whole) = shown(&profile, &[]);
    assert_eq!(trace["complete"], false);
    assert_eq!(whole["complete"], false);
    let threads = trace["threads"].as_array().unwrap();
    assert_eq!(threads.len(), 2);
    for thread in threads {
        // 4 MiB four times, each line fetched and, all but the last MiB, written back.
        let records = thread["trace"]["records"].as_u64().unwrap();
        assert!(records > 7 * (4 << 20) / 64, "{thread}");
    }
    assert!(profile.join("accesses/1.trace").is_file());
}

#[test]
fn what_cannot_be_is_refused_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("p.numaloc");
    let refused = |options: &[&str], expected: &str| {
        let mut command = numaloc(&["record", "--trace", "-o"]);
        let said = fails(command.arg(&out).args(options).args(["--", "true"]), 2);
        assert!(said.contains(expected), "{said}");
    };
    refused(&["--clock", "wall"], "--trace with --clock wall");
    refused(&["--frontend", "perf"], "--trace with --frontend perf");
    refused(&["--trace-l1", "64/8"], "--trace-l1 is 64/8");
    refused(
        &["--trace-l2", "16K/8"],
        "--trace-l2 16K/8 is smaller than --trace-l1 32K/8",
    );
    refused(&["--llc", "1K/64"], "--llc is 1K/64x1");
    assert!(!out.exists());
    let mut command = numaloc(&["record", "--trace", "--trace-l1", "32K", "--", "true"]);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        said.contains("expected: size and ways, such as 32K/8"),
        "{said}"
    );

    ok(numaloc(&["record", "--quiet", "-o"])
        .arg(&out)
        .args(["--", "true"]));
    let said = fails(numaloc(&["show", "--trace"]).arg(&out), 1);
    assert!(
        said.contains("has no access trace") && said.contains("record --trace"),
        "{said}"
    );
    std::fs::create_dir(out.join("accesses")).unwrap();
    std::fs::write(out.join("accesses/0.trace"), b"something else").unwrap();
    let said = fails(numaloc(&["show", "--trace"]).arg(&out), 1);
    assert!(
        said.contains("accesses/0.trace") && said.contains("does not list"),
        "{said}"
    );
}

/// Works until it gets input, works on, then prints a line.
const LONG: &str = r#"
#include <stdio.h>
static volatile long data[4 << 17];
static void work(void)
{
    for (int time = 0; time < 30; time++)
        for (long at = time % 8; at < 4 << 17; at += 8)
            data[at] += time;
}
int main(void)
{
    work();
    getchar();
    work();
    puts("done");
    return 0;
}
"#;

#[test]
fn a_killed_recorder_leaves_the_program_alone_and_a_trace_to_salvage() {
    use std::io::Read;
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "long", LONG, false);
    let profile = dir.path().join("p.numaloc");
    let mut recorder = numaloc(&["record", "--quiet", "--trace", "-o"])
        .arg(&profile)
        .arg("--")
        .arg(&program)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let go_on = recorder.stdin.take().unwrap();
    let mut said = recorder.stdout.take().unwrap();
    // Until a few blocks are on disk.
    let work = loop {
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(recorder.try_wait().unwrap().is_none(), "it is over already");
        let folder = std::fs::read_dir(dir.path())
            .unwrap()
            .flatten()
            .map(|entry| entry.path())
            .find(|path| path.join("1.trace").is_file());
        if let Some(folder) = folder
            && std::fs::metadata(folder.join("1.trace")).unwrap().len() > 2000
        {
            break folder;
        }
    };
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    drop(go_on);
    let mut text = String::new();
    said.read_to_string(&mut text).unwrap();
    assert_eq!(text, "done\n", "the program goes on to its end");

    ok(numaloc(&["record", "--quiet", "--salvage"])
        .arg(&work)
        .arg("-o")
        .arg(&profile));
    let (trace, whole) = shown(&profile, &[]);
    assert_eq!(trace["complete"], false);
    assert!(trace["trace"]["records"].as_u64().unwrap() > 16_000);
    assert!(trace["trace"]["accesses"].as_u64() < whole["threads"][0]["accesses"].as_u64());
}

/// The private caches have the same misses as cachegrind's of the same sizes.
#[test]
fn misses_are_those_that_cachegrind_counts() {
    let dir = tempfile::tempdir().unwrap();
    let workloads = [["transpose", "512", "2"], ["stencil2d", "512", "2"]];
    for arguments in chosen(workloads, &[0]) {
        let program = support::workload(arguments[0]);
        let profile = dir.path().join("p.numaloc");
        ok(numaloc(&["record", "--quiet", "--force", "--trace", "-o"])
            .arg(&profile)
            .arg("--")
            .arg(&program)
            .args(&arguments[1..])
            .env("OMP_NUM_THREADS", "1"));
        let (trace, _) = shown(&profile, &[]);
        let output = Command::new("valgrind")
            .args(["--tool=cachegrind", "--cache-sim=yes", "--I1=32768,8,64"])
            .args(["--D1=32768,8,64", "--LL=1048576,16,64"])
            .arg("--cachegrind-out-file=/dev/null")
            .arg(&program)
            .args(&arguments[1..])
            .env("OMP_NUM_THREADS", "1")
            .output()
            .expect("valgrind runs");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        // `==1== D1  misses:   1,280,547  (1,083,376 rd   +   197,171 wr)`
        let counted = |what: &str| -> f64 {
            let line = text.lines().find(|line| line.contains(what));
            let number = line.and_then(|line| line.split(what).nth(1)?.split_whitespace().next());
            let number = number.unwrap_or_else(|| panic!("no {what} in {text}"));
            number.replace(',', "").parse().unwrap()
        };
        let of = |value: &Value| value.as_f64().unwrap();
        let ours = &trace["trace"];
        let first = of(&ours["accesses"]) - of(&ours["l1_hits"]);
        let second = of(&trace["records"]["read"]) + of(&trace["records"]["write"]);
        for (what, count) in [("D1  misses:", first), ("LLd misses:", second)] {
            let theirs = counted(what);
            // Their second level holds instructions too, and the loader chooses other functions for another processor.
            assert!(
                (count - theirs).abs() < 0.01 * theirs + 500.0,
                "{arguments:?}: {what} {theirs}, ours {count}"
            );
        }
    }
}
