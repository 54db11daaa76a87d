//! The main job on real programs: record, show, plan, run, report.

use crate::support;
use crate::support::{assert_similar, fails, matrix, numaloc, ok, record, share, workload};
use serde_json::Value;

fn path(name: &str) -> String {
    workload(name).to_str().expect("UTF-8").to_owned()
}

#[test]
fn ring_communicates_with_its_neighbours_and_twice_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (dir.path().join("a.numaloc"), dir.path().join("b.numaloc"));
    let program = [&path("ring")[..], "1024", "40"];
    record(&a, 16, &program);
    record(&b, 16, &program);
    let (ma, mb) = (matrix(&a), matrix(&b));
    assert_eq!(ma.len(), 16);
    let near = share(&ma, |i, j| (i + 1) % 16 == j || (j + 1) % 16 == i);
    assert!(near >= 0.95, "share of neighbours is {near}");
    assert_similar(&ma, &mb, 0.99, 0.02, "two recordings");
    let paths = |folder: &std::path::Path| -> Vec<String> {
        let shown: Value =
            serde_json::from_str(&ok(numaloc(&["show", "--json"]).arg(folder))).unwrap();
        shown["threads"]
            .as_array()
            .expect("threads")
            .iter()
            .map(|thread| thread["path"].as_str().expect("path").to_owned())
            .collect()
    };
    assert_eq!(paths(&a), paths(&b));
}

#[test]
fn distant_pairs_communicate_over_half_the_threads() {
    let dir = tempfile::tempdir().unwrap();
    let a = dir.path().join("a.numaloc");
    record(&a, 16, &[&path("distant_pairs"), "1024", "40"]);
    let far = share(&matrix(&a), |i, j| i % 8 == j % 8);
    assert!(far >= 0.95, "share of (i, i+8) is {far}");
}

#[test]
fn ep_hardly_communicates() {
    let dir = tempfile::tempdir().unwrap();
    let a = dir.path().join("a.numaloc");
    record(&a, 16, &[&path("ep")]);
    let shown: Value = serde_json::from_str(&ok(numaloc(&["show", "--json"]).arg(&a))).unwrap();
    let ratio = shown["metrics"]["communication_ratio"]
        .as_f64()
        .expect("a ratio");
    assert!(
        (0.0..0.01).contains(&ratio),
        "communication ratio is {ratio}"
    );
}

/// A large array initialised by the main thread, used by four threads.
const GRID: &str = "\
#include <pthread.h>
#include <stddef.h>
#define ROWS 64
static double grid[ROWS][131072];
static void *sweep(void *part) {
  size_t from = (size_t)part * (ROWS / 4);
  for (int round = 0; round < 12; round++)
    for (size_t row = from; row < from + ROWS / 4; row++)
      for (size_t at = 0; at < 131072; at++) grid[row][at] += 1.0;
  return NULL;
}
int main(void) {
  pthread_t threads[4];
  for (size_t row = 0; row < ROWS; row++)
    for (size_t at = 0; at < 131072; at++) grid[row][at] = 1.0;
  for (size_t t = 0; t < 4; t++) pthread_create(&threads[t], NULL, sweep, (void *)t);
  for (size_t t = 0; t < 4; t++) pthread_join(threads[t], NULL);
  return grid[3][3] != 13.0;
}
";

#[test]
fn the_verdict_names_the_variable_its_line_and_who_initialised_it() {
    let dir = tempfile::tempdir().unwrap();
    let (source, program) = (dir.path().join("stencil.c"), dir.path().join("stencil"));
    std::fs::write(&source, GRID).unwrap();
    ok(std::process::Command::new("cc")
        .args(["-O1", "-g", "-pthread", "-o"])
        .args([&program, &source]));
    let a = dir.path().join("a.numaloc");
    record(&a, 4, &[program.to_str().unwrap()]);
    let shown: Value =
        serde_json::from_str(&ok(
            numaloc(&["show", "--json", "--machine", "numa4x4"]).arg(&a)
        ))
        .unwrap();
    let verdicts = shown["verdicts"].as_array().expect("a list");
    let verdict = verdicts
        .iter()
        .find(|verdict| verdict["measure"] == "page_placement")
        .expect("there is one of each");
    assert_eq!(verdict["verdict"], "likely to help", "{verdict}");
    let reason = verdict["reason"].as_str().expect("a reason");
    let words = "The main thread initialised 100 % of the 16384 pages of `grid` (stencil.c:4), which 5 threads then use";
    let near = reason.replace("16383 pages", "16384 pages");
    assert!(near.contains(words), "{reason}");
    let grid = &shown["objects"][0];
    assert_eq!(grid["variable"], "grid");
    assert_eq!(grid["source"], "stencil.c:4");
    assert!(grid["name"].as_str().expect("a name").ends_with(":.bss"));
}

#[test]
fn two_phases_show_in_order_and_deloc_spreads_the_pairs_of_a_phase() {
    let dir = tempfile::tempdir().unwrap();
    let a = dir.path().join("a.numaloc");
    record(&a, 16, &[&path("two_phase"), "1024", "80"]);
    let profile = numaloc_formats::profile::read(&a).unwrap();
    // Centre of gravity in time of the events of each pattern: the neighbours come first.
    let (mut first, mut second) = ((0.0, 0.0), (0.0, 0.0));
    for row in profile.communication() {
        let (i, j) = (row.src.index(), row.dst.index());
        let pattern = match (i ^ 1 == j, i % 8 == j % 8) {
            (true, false) => &mut first,
            (false, true) => &mut second,
            _ => continue,
        };
        pattern.0 += f64::from(row.slice.0) * row.events as f64;
        pattern.1 += row.events as f64;
    }
    let slices = profile.slices().len() as f64;
    let (early, late) = (first.0 / first.1 / slices, second.0 / second.1 / slices);
    assert!(
        early < 0.45 && late > 0.55,
        "neighbours at {early}, distant pairs at {late} of the run"
    );

    let plan = dir.path().join("plan.json");
    ok(numaloc(&[
        "plan",
        "--anyway",
        "--machine",
        "numa:4 core:4 pu:1",
        "--threads",
        "deloc",
        "-o",
    ])
    .arg(&plan)
    .arg(&a));
    let plan = numaloc_formats::plan::read(&plan).unwrap();
    let node = |t: usize| plan.threads[t].pu.0 / 4;
    // Both patterns cannot be kept whole on 4 nodes of 4; the heavier cluster's pairs are.
    let kept =
        |pairs: &[(usize, usize)]| pairs.iter().filter(|(a, b)| node(*a) == node(*b)).count();
    let near: Vec<_> = (0..8).map(|i| (2 * i, 2 * i + 1)).collect();
    let far: Vec<_> = (0..8).map(|i| (i, i + 8)).collect();
    assert!(
        kept(&near) == 8 || kept(&far) == 8,
        "near {}, far {}",
        kept(&near),
        kept(&far)
    );
    let together = if kept(&near) == 8 { &near } else { &far };
    for n in 0..4 {
        assert_eq!(
            together.iter().filter(|(a, _)| node(*a) == n).count(),
            2,
            "pairs on node {n}"
        );
    }
}

#[test]
fn a_plan_for_this_machine_runs_and_is_verified() {
    let dir = tempfile::tempdir().unwrap();
    let (profile, plan) = (dir.path().join("p.numaloc"), dir.path().join("plan.json"));
    record(&profile, 2, &[&path("pairs"), "1024", "20"]);
    ok(numaloc(&[
        "plan",
        "--anyway",
        "--threads",
        "locality",
        "--pages",
        "locality",
        "-o",
    ])
    .arg(&plan)
    .arg(&profile));
    let output = numaloc(&["run", "--plan"])
        .arg(&plan)
        .args(["--", &path("pairs"), "1024", "20"])
        .env("OMP_NUM_THREADS", "2")
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    assert!(output.status.success(), "{err}");
    assert!(
        out.contains("pairs: 2 threads") && out.contains(" 0 wrong"),
        "{out}"
    );
    assert!(err.contains("2 of 2"), "threads verified:\n{err}");
    let report = dir.path().join("report.html");
    ok(numaloc(&["report", "-o"])
        .arg(&report)
        .arg(&profile)
        .arg(&plan));
    let html = std::fs::read_to_string(&report).unwrap();
    assert!(html.starts_with("<!DOCTYPE html>") || html.starts_with("<!doctype html>"));
    assert!(
        !html.contains("src=\"http") && !html.contains("href=\"http"),
        "needs no network"
    );
}

#[test]
fn status_and_output_of_the_program_pass_through() {
    let dir = tempfile::tempdir().unwrap();
    let sh = |script: &str, name: &str| {
        numaloc(&["record", "--quiet", "-o"])
            .arg(dir.path().join(name))
            .args(["--", "/bin/sh", "-c", script])
            .output()
            .unwrap()
    };
    let output = sh("echo out; echo err >&2; exit 7", "a.numaloc");
    assert_eq!(
        output.status.code(),
        Some(7),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(output.stdout, b"out\n");
    assert!(String::from_utf8_lossy(&output.stderr).contains("err\n"));
}

#[test]
fn bad_input_is_one_clear_line_with_its_own_status() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("x.numaloc");
    let record = |program: &str| {
        let mut command = numaloc(&["record", "-o"]);
        command.arg(&out).args(["--", program]);
        command
    };
    let error = fails(&mut record("/no/such/program"), 127);
    assert!(error.contains("/no/such/program"), "{error}");
    let text = dir.path().join("text");
    std::fs::write(&text, "no program\n").unwrap();
    let error = fails(&mut record(text.to_str().unwrap()), 126);
    assert!(error.contains("text"), "{error}");
    // A 32-bit ELF header, marked executable.
    let elf32 = dir.path().join("elf32");
    let mut bytes = vec![0u8; 64];
    bytes[..7].copy_from_slice(b"\x7fELF\x01\x01\x01");
    bytes[16..20].copy_from_slice(&[2, 0, 3, 0]);
    std::fs::write(&elf32, &bytes).unwrap();
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&elf32, std::fs::Permissions::from_mode(0o755)).unwrap();
    let error = fails(&mut record(elf32.to_str().unwrap()), 126);
    assert!(error.contains("32-bit"), "{error}");
    assert!(!out.exists(), "nothing half-written");

    fails(numaloc(&["show", "/no/such/profile"]).arg("--quiet"), 1);
    let error = fails(&mut numaloc(&["show", dir.path().to_str().unwrap()]), 1);
    assert!(error.contains("not a numaloc profile"), "{error}");

    support::record(&out, 2, &[&path("pairs"), "64", "2"]);
    let error = fails(&mut record("/bin/true"), 125);
    assert!(
        error.contains("exists") && error.contains("--force"),
        "{error}"
    );
    let plan = dir.path().join("plan.json");
    let planned = |policy: &str| {
        let mut command = numaloc(&[
            "plan",
            "--anyway",
            "--machine",
            "numa4x4",
            "--threads",
            policy,
            "-o",
        ]);
        command.arg(&plan).arg(&out);
        command
    };
    let error = fails(&mut planned("scater"), 2);
    assert!(
        error.contains("scater") && error.contains("scatter"),
        "{error}"
    );
    assert!(!plan.exists());
    ok(&mut planned("scatter"));
    let error = fails(
        numaloc(&["run", "--plan"])
            .arg(&plan)
            .args(["--", "/bin/true"]),
        125,
    );
    assert!(
        error.contains("numa4x4") && error.contains("machine"),
        "{error}"
    );

    let table = out.join("communication.parquet");
    let bytes = std::fs::read(&table).unwrap();
    std::fs::write(&table, &bytes[..bytes.len() / 2]).unwrap();
    let error = fails(numaloc(&["show"]).arg(&out), 1);
    assert!(error.contains("communication.parquet"), "{error}");
}

#[test]
fn a_plan_that_cannot_be_written_names_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let profile = dir.path().join("p.numaloc");
    record(&profile, 2, &[&path("pairs"), "64", "2"]);
    let error = fails(
        numaloc(&["plan", "--machine", "numa4x4", "-o", "/proc/plan.json"]).arg(&profile),
        1,
    );
    assert!(error.contains("/proc/plan.json"), "{error}");
}
