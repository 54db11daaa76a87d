//! Traces that have the requests of windows only.

use std::process::Command;

use serde_json::Value;

use super::{recorded, row};
use crate::support::{numaloc, ok};

/// The one line of error with which a command ends with this status.
fn refused(command: &mut Command, status: i32) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(status), "{text}");
    let mut errors = text.lines().filter(|line| line.starts_with("error: "));
    assert!(errors.next().is_some() && errors.next().is_none(), "{text}");
    text
}

#[test]
fn a_trace_of_windows_has_the_time_of_the_whole_within_the_error_it_states() {
    let dir = tempfile::tempdir().unwrap();
    let (profile, machine) = recorded(dir.path());
    let windows = dir.path().join("windows.numaloc");
    let record = |more: &[&str]| {
        let mut command = numaloc(&["record", "--trace", "--trace-l2", "64K/8"]);
        command.args(more).arg("-o").arg(&windows);
        command.arg("--").arg(dir.path().join("a program/parts"));
        command
    };
    let error = refused(&mut record(&["--trace-windows", "60%"]), 2);
    assert!(error.contains("0.0001% to 50%"), "{error}");
    let output = record(&["--trace-windows", "10%", "--trace-warm", "1M"])
        .output()
        .unwrap();
    let remarks = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{remarks}");
    assert!(remarks.contains("no cache model"), "{remarks}");
    let simulate = |profile, pages: &str| {
        let mut command = numaloc(&[
            "simulate",
            "--json",
            "--threads",
            "scatter",
            "--pages",
            pages,
        ]);
        command.arg("--machine").args([&machine, profile]);
        command
    };
    let of = |profile| -> Value {
        serde_json::from_str(&ok(&mut simulate(profile, "first-touch,locality"))).unwrap()
    };
    let (whole, found) = (of(&profile), of(&windows));
    for pages in ["first-touch", "locality"] {
        let time = |found| row(found, pages)["time_ns"].as_f64().unwrap();
        let sampled = &row(&found, pages)["sampled"];
        let off = (time(&found) / time(&whole) - 1.0).abs();
        let stated = sampled["error"].as_f64().unwrap();
        assert!(off < 0.1, "{off} {sampled}");
        assert!(
            stated < 1.0 && sampled["windows"].as_u64().unwrap() > 5,
            "{sampled}"
        );
        let share =
            |name: &str| sampled[name].as_f64().unwrap() / sampled["records"].as_f64().unwrap();
        assert!(
            (0.05..0.3).contains(&share("detailed_records")),
            "{sampled}"
        );
    }
    // The whole trace, as if it had been recorded so: the program's threads wait for each other at the same points.
    let text = ok(simulate(&profile, "first-touch,locality").args([
        "--trace-windows",
        "10%",
        "--trace-warm",
        "1M",
    ]));
    let reduced: Value = serde_json::from_str(&text).unwrap();
    for pages in ["first-touch", "locality"] {
        let sampled = |from: &Value| row(from, pages)["sampled"].clone();
        let windows = sampled(&found)["windows"].as_u64().unwrap();
        let of_reduced = sampled(&reduced);
        assert!(
            of_reduced["windows"].as_u64().unwrap().abs_diff(windows) <= 1,
            "{of_reduced}"
        );
        let time = |from| row(from, pages)["time_ns"].as_f64().unwrap();
        let off = (time(&reduced) / time(&whole) - 1.0).abs();
        assert!(off < 0.1, "{off} {of_reduced}");
    }
    let mut both = simulate(&profile, "first-touch");
    both.args(["--trace-windows", "10%", "--sample", "10%"]);
    let error = refused(&mut both, 2);
    assert!(error.contains("--sample"), "{error}");
    let error = refused(&mut simulate(&windows, "autonuma"), 1);
    assert!(error.contains("page policy autonuma needs all"), "{error}");
    let error = refused(numaloc(&["show", "--trace"]).arg(&windows), 1);
    assert!(error.contains("windows only"), "{error}");
    // Without its second half it is refused, as any other.
    let trace = windows.join("accesses/0.trace");
    let bytes = std::fs::read(&trace).unwrap();
    std::fs::write(&trace, &bytes[..bytes.len() / 2]).unwrap();
    let error = refused(&mut simulate(&windows, "first-touch"), 1);
    assert!(error.contains("0.trace"), "{error}");
}
