//! Plans in simulations, and samples of them.

use std::path::Path;

use serde_json::Value;

use super::{MACHINE, recorded, row};
use crate::support::{numaloc, ok, workload};

/// Both halves of the program are local where the plan's schedule moves threads and pages between them.
#[test]
fn the_schedule_of_a_plan_moves_threads_and_pages_while_the_program_runs() {
    let dir = tempfile::tempdir().unwrap();
    let (profile, machine) = (
        dir.path().join("two.numaloc"),
        dir.path().join("small.toml"),
    );
    std::fs::write(&machine, MACHINE).unwrap();
    let traced = ["--trace", "--trace-l2", "64K/8"];
    ok(numaloc(&["record", "--quiet", "-o"])
        .arg(&profile)
        .args(traced)
        .env("OMP_NUM_THREADS", "4")
        .env("OMP_WAIT_POLICY", "passive")
        .arg("--")
        .arg(workload("two_phase"))
        .args(["2048", "400"]));
    let plan = |name: &str, more: &[&str]| {
        let file = dir.path().join(name);
        ok(numaloc(&[
            "plan",
            "--quiet",
            "--anyway",
            "--threads",
            "numaloc",
            "--pages",
            "locality",
        ])
        .arg("--machine")
        .args([&machine, &profile])
        .args(more)
        .arg("-o")
        .arg(&file));
        file
    };
    let (fixed, moving) = (plan("fixed.json", &[]), plan("moving.json", &["--dynamic"]));
    let found = ok(
        numaloc(&["simulate", "--json", "--pages", "first-touch", "--machine"])
            .args([&machine, &profile])
            .arg("--plan")
            .arg(&fixed)
            .arg("--plan")
            .arg(&moving),
    );
    let found: Value = serde_json::from_str(&found).unwrap();
    let of = |name: &str| row(&found, &format!("locality ({name})"));
    let remote = |name: &str| of(name)["remote_requests_percent"].as_f64().unwrap();
    assert!(
        remote("fixed") > 25.0,
        "one half is remote: {}",
        remote("fixed")
    );
    assert!(
        remote("moving") < 8.0,
        "both are local: {}",
        remote("moving")
    );
    assert!(of("moving")["thread_moves"].as_u64().unwrap() > 0);
    assert_eq!(of("fixed")["thread_moves"], 0);
    let time = |name: &str| of(name)["time_ns"].as_f64().unwrap();
    assert!(
        time("moving") < time("fixed"),
        "the moves cost less than they gain"
    );
}

#[test]
fn a_sample_has_the_time_of_the_whole_within_the_error_it_states() {
    let dir = tempfile::tempdir().unwrap();
    let (profile, machine) = recorded(dir.path());
    let simulate = |more: &[&str]| {
        ok(
            numaloc(&["simulate", "--threads", "scatter", "--pages", "first-touch"])
                .arg("--machine")
                .args([&machine, &profile])
                .args(more),
        )
    };
    let time = |found: &str| -> (f64, Value) {
        let found: Value = serde_json::from_str(found).unwrap();
        let row = row(&found, "first-touch").clone();
        (row["time_ns"].as_f64().unwrap(), row["sampled"].clone())
    };
    let (whole, not_sampled) = time(&simulate(&["--json"]));
    assert!(not_sampled.is_null());
    let (found, sampled) = time(&simulate(&["--json", "--sample", "10%"]));
    let off = (found / whole - 1.0).abs();
    assert!(off < 0.1, "{off} {sampled}");
    assert!(sampled["windows"].as_u64().unwrap() > 5, "{sampled}");
    let text = simulate(&["--sample", "0.1", "--warmed", "50%"]);
    assert!(text.contains("of the records in detail, "), "{text}");
    let refused = numaloc(&["simulate", "--machine", "purple", "--sample", "0"])
        .arg(&profile)
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2));
}

/// A plan for other threads, a trace that ends in the middle, and files that are not the profile's trace.
#[test]
fn plans_for_other_threads_and_damaged_traces_are_reported_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let (profile, machine) = recorded(dir.path());
    let plan = dir.path().join("plan.json");
    let named = ["--threads", "numaloc", "--pages", "locality", "--anyway"];
    ok(numaloc(&["plan", "--quiet", "--machine"])
        .args([&machine, &profile])
        .args(named)
        .arg("-o")
        .arg(&plan));
    let text = std::fs::read_to_string(&plan).unwrap();
    let refused = |profile: &Path, more: &[&Path]| {
        let mut command = numaloc(&["simulate", "--pages", "first-touch", "--machine"]);
        command.args([machine.as_path(), profile]);
        for plan in more {
            command.arg("--plan").arg(plan);
        }
        let output = command.output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), error)
    };
    // Another thread in place of the last one.
    let other: Value = serde_json::from_str(&text).unwrap();
    let last = other["threads"].as_array().unwrap().last().unwrap()["path"].clone();
    let changed = text.replace(&format!("{last}"), "\"0.99\"");
    std::fs::write(&plan, changed).unwrap();
    let (status, error) = refused(&profile, &[&plan]);
    assert_eq!(status, Some(1), "{error}");
    assert!(
        error.contains("plans thread 0.99, which the profile does not have"),
        "{error}"
    );
    let errors = error.lines().filter(|line| line.starts_with("error: "));
    assert_eq!(errors.count(), 1, "{error}");
    // A trace without its second half, a file that is none, and the trace of another program.
    let trace = profile.join("accesses/0.trace");
    let whole = std::fs::read(&trace).unwrap();
    let other = [&whole[..], &whole[..]].concat();
    for damaged in [&whole[..whole.len() / 2], b"a,b\n1,2\n", &other] {
        std::fs::write(&trace, damaged).unwrap();
        let (status, error) = refused(&profile, &[]);
        assert_eq!(status, Some(1), "{error}");
        let errors = error.lines().filter(|line| line.starts_with("error: "));
        assert_eq!(errors.count(), 1, "{error}");
        assert!(
            error.contains("cannot read ") && error.contains("0.trace: "),
            "{error}"
        );
    }
}
