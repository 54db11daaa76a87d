//! `numaloc compare` on real programs: policies in, a table out.

use crate::support::{fails, numaloc, ok, workload};
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn policies_are_recorded_planned_run_and_compared() {
    let ring = workload("ring");
    let text = ok(numaloc(&["--quiet", "--json", "compare"])
        .args([
            "--threads",
            "numaloc,random",
            "--pages",
            "locality,interleave",
        ])
        .args(["--runs", "3", "--"])
        .arg(&ring)
        .args(["512", "10"])
        .env("OMP_NUM_THREADS", "2"));
    let found: Value = serde_json::from_str(&text).unwrap();
    let rows = found["variants"].as_array().unwrap();
    let names: Vec<&str> = rows
        .iter()
        .map(|r| r["variant"].as_str().unwrap())
        .collect();
    let planned: Vec<&str> = names.iter().copied().filter(|n| n.contains('+')).collect();
    assert_eq!(names[0], "os-default");
    assert_eq!(
        planned,
        [
            "numaloc+locality",
            "numaloc+interleave",
            "random+locality",
            "random+interleave"
        ]
    );
    for row in rows {
        // The statistics again, from the single times that are reported.
        let seconds: Vec<f64> = row["seconds"]
            .as_array()
            .unwrap()
            .iter()
            .map(|s| s.as_f64().unwrap())
            .collect();
        assert_eq!((seconds.len(), row["runs"].as_u64()), (3, Some(3)));
        let mean = seconds.iter().sum::<f64>() / 3.0;
        let variance = seconds.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / 2.0;
        let near = |name: &str, value: f64| {
            let shown = row[name].as_f64().unwrap();
            assert!(
                (shown - value).abs() <= 1e-9 + 1e-3 * value,
                "{name}: {shown}, {value}"
            );
        };
        near("mean_s", mean);
        // Student's t, 97.5 %, two degrees of freedom.
        near("ci95_half_width_s", 4.303 * (variance / 3.0).sqrt());
        near("speed_up", rows[0]["mean_s"].as_f64().unwrap() / mean);
    }
    let missing = &found["not_available"];
    let energy = rows[0]["energy_j"].is_number();
    assert_eq!(energy, missing["energy"].is_null(), "{missing}");
    // Each group of the memory system's figures is measured for every variant, or named with the reason.
    let unmeasured = missing["memory_system"].as_array().unwrap();
    for (what, figure) in [
        ("DRAM volume and bandwidth", "bandwidth"),
        ("memory-controller queue and latency", "read-queue"),
        ("UPI/QPI/xGMI bytes", "link-"),
        ("local and remote reads", "remote-reads"),
        ("DRAM energy", "dram-energy"),
    ] {
        let named = unmeasured.iter().any(|m| m["what"] == what);
        for row in rows {
            let figures = row["memory_system"].as_array().unwrap();
            let measured = figures
                .iter()
                .any(|f| f["figure"].as_str().unwrap().contains(figure));
            assert_ne!(named, measured, "{what}: {row}");
        }
    }
    let one_node = names.get(1) != Some(&"autonuma");
    assert_eq!(one_node, missing["autonuma"].is_string(), "{missing}");
}

#[test]
fn runs_are_prepared_warmed_up_and_shown_as_tables() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    std::fs::write(here.join("m.csv"), "0,5\n5,0\n").unwrap();
    let tool = |args: &[&str]| ok(numaloc(args).current_dir(here));
    tool(&["import", "m.csv", "-o", "m.numaloc"]);
    tool(&["plan", "m.numaloc", "--anyway", "-o", "plan.json"]);
    let compare = &["--quiet", "compare", "--plan", "plan.json"][..];
    let program = ["sh", "-c", "test -e ready && rm ready && echo >> runs"];
    let with = |options: &[&str]| tool(&[compare, options, &program].concat());
    let prepared = [
        "--runs",
        "3",
        "--warm-up",
        "2",
        "--prepare",
        "touch ready; echo >> prepared",
    ];
    let page = with(&[&prepared[..], &["--md"]].concat());
    // Two variants, five rounds; each run needs what was prepared for it.
    for name in ["prepared", "runs"] {
        assert_eq!(
            std::fs::read_to_string(here.join(name))
                .unwrap()
                .lines()
                .count(),
            10,
            "{name}"
        );
    }
    let lines: Vec<&str> = page.lines().collect();
    let variants = lines.iter().filter(|line| line.contains("| 3 |")).count();
    assert!(
        lines[0].starts_with("| variant | runs | mean ") && variants >= 2,
        "{page}"
    );
    let cells = |line: &str| line.matches('|').count();
    assert!(
        lines.iter().all(|line| cells(line) == cells(lines[0])),
        "{page}"
    );
    let table = with(&["--runs", "2", "--prepare", "touch ready", "--csv"]);
    let rows: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split(',').collect())
        .collect();
    assert_eq!(
        rows[0][..5],
        ["variant", "runs", "mean_s", "ci95_half_width_s", "min_s"]
    );
    for row in &rows[1..] {
        let number = |at: usize| row[at].parse::<f64>().unwrap();
        assert_eq!((row.len(), row[1]), (rows[0].len(), "2"), "{table}");
        assert!(number(4) <= number(2) && number(2) <= number(5), "{table}");
    }
    let error = fails(
        numaloc(&[compare, &["--prepare", "exit 5"], &program].concat()).current_dir(here),
        1,
    );
    assert!(
        error.contains("--prepare exit 5 ended with exit status: 5"),
        "{error}"
    );
}

/// With one PU there is only one mapping to draw.
#[test]
fn random_draws_again_in_each_round() {
    let folder = tempfile::tempdir().unwrap();
    let seats = folder.path().join("seats");
    // The program writes where it may run. Under the first plan that is one PU, by chance.
    let program = "grep Cpus_allowed_list /proc/self/status >> seats";
    ok(
        numaloc(&["--quiet", "--json", "compare", "--threads", "random"])
            .args(["--pages", "first-touch", "--runs", "12"])
            .args(["--", "sh", "-c", program])
            .current_dir(folder.path()),
    );
    let seats = std::fs::read_to_string(seats).unwrap();
    let pus = std::thread::available_parallelism().unwrap().get();
    let one_pu = |seat: &&str| !seat.contains([',', '-']);
    let drawn: BTreeSet<&str> = seats
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .filter(one_pu)
        .collect();
    // A plan for all rounds would be one PU; twelve draws of two or more find another.
    assert!(drawn.len() > 1 || pus == 1, "{seats}");
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let error = fails(numaloc(&["compare"]).args(["--", "true"]), 2);
    assert!(error.contains("nothing to compare"), "{error}");
    let error = fails(
        numaloc(&["compare", "--threads", "nonesuch"]).args(["--", "true"]),
        2,
    );
    assert!(error.contains("nonesuch"), "{error}");
    let error = fails(
        numaloc(&["compare", "--pages", "locality,all"]).args(["--", "true"]),
        2,
    );
    assert!(error.contains("cannot compare `all` policies"), "{error}");
    let error = fails(
        numaloc(&["--quiet", "compare", "--pages", "interleave", "--runs", "2"])
            .args(["--", "sh", "-c", "exit 3"]),
        1,
    );
    assert!(error.contains("ended with exit status: 3"), "{error}");
}

#[test]
fn a_signal_ends_the_program_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("hangs");
    // The run that is recorded ends, the first measured one hangs.
    let script = "cd \"$0\"; test -e started && { touch hangs; exec sleep 1000; }; touch started";
    let mut compare = numaloc(&["--quiet", "compare", "--threads", "numaloc", "--"])
        .args(["sh", "-c", script])
        .arg(folder.path())
        .env("TMPDIR", folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while !mark.exists() {
        assert!(compare.try_wait().unwrap().is_none(), "it is over already");
        std::thread::sleep(Duration::from_millis(10));
    }
    let pid = compare.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-TERM", &pid])
            .status()
            .unwrap()
            .success()
    );
    let output = compare.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(128 + 15));
    let mut left: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["hangs", "started"]);
}
