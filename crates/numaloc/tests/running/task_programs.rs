//! The four steps of `numaloc tasks` on a real program: compile, profile, analyse, run with the plan.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{numaloc, ok, root};

const MACHINE: &str = "numa:4 pu:1";
const STRANDS: u64 = 4;
/// Of the run that takes the plan; the profile is of a smaller grid and fewer iterations.
const SIDE: u64 = 512;
const ITERATIONS: u64 = 10;

/// Bytes of its own rectangle that a strand's tasks get: two arrays, in two tasks per iteration.
const RECTANGLES: u64 = 2 * 8 * SIDE * SIDE * 2 * ITERATIONS;
/// Bytes that go between strands, two deep along two sides of each, and one result of each.
const BORDERS: u64 = STRANDS * (2 * 2 * 8 * SIDE / 2 * ITERATIONS + 8);
/// The main task, the one that checks the result, and of each strand the first and two per iteration.
const TASKS: u64 = 2 + STRANDS * (1 + 2 * ITERATIONS);

/// stencil2d as a user compiles it. The library is next to `numaloc`, where `tasks cc` searches for it.
fn stencil(folder: &Path) -> PathBuf {
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "-q", "--offline", "-p", "numaloc-ocr"]);
    if Path::new(env!("CARGO_BIN_EXE_numaloc"))
        .parent()
        .is_some_and(|folder| folder.ends_with("release"))
    {
        build.arg("--release");
    }
    // `make test` has built it.
    if std::env::var_os("NUMALOC_BUILT").is_none() {
        ok(build.current_dir(root()));
    }
    let program = folder.join("stencil2d");
    ok(numaloc(&["tasks", "cc", "-O2", "-Wall", "-Werror"])
        .arg(root().join("workloads/ocr/stencil2d/stencil2d.c"))
        .arg("-o")
        .arg(&program));
    program
}

/// A profile of a small grid and the plan made of it.
fn planned(folder: &Path, program: &Path) -> PathBuf {
    let (profile, plan) = (folder.join("profile"), folder.join("plan"));
    let printed = ok(numaloc(&["tasks", "profile", "--machine", MACHINE, "-o"])
        .arg(&profile)
        .arg("--")
        .arg(program)
        .args(["256", "2", "2", "4"]));
    assert!(
        printed.contains("norm 8.000000 expected 8.000000"),
        "{printed}"
    );
    ok(numaloc(&["tasks", "analyse", "--machine", MACHINE])
        .arg(&profile)
        .arg("-o")
        .arg(&plan));
    plan
}

/// Runs the large grid, checks its result, and gives the statistics.
fn run(program: &Path, options: &[&str], plan: Option<&Path>, threads: bool) -> serde_json::Value {
    let folder = tempfile::tempdir().unwrap();
    let stats = folder.path().join("stats.json");
    let mut command = numaloc(&["tasks", "run", "--machine", MACHINE]);
    command.args(options).arg("--stats").arg(&stats);
    if let Some(plan) = plan {
        command.arg("--plan").arg(plan);
    }
    if threads {
        command.env("NUMALOC_OCR_THREADS", "1");
    }
    let printed = ok(command
        .arg("--")
        .arg(program)
        .args([SIDE, 2, 2, ITERATIONS].map(|number| number.to_string())));
    assert!(
        printed.contains("norm 20.000000 expected 20.000000"),
        "{printed}"
    );
    let stats: serde_json::Value = serde_json::from_slice(&std::fs::read(&stats).unwrap()).unwrap();
    assert_eq!(stats["tasks"], TASKS, "{stats}");
    let placement = if threads { "threads" } else { "simulated" };
    assert_eq!(stats["placement"], placement, "{stats}");
    stats
}

/// Moves every row of a table of the plan to the next node, in column `column`.
fn rotate(plan: &Path, table: &str, column: usize) {
    let path = plan.join(table);
    let text = std::fs::read_to_string(&path).unwrap();
    let mut lines = text.lines();
    let mut out = format!("{}\n", lines.next().unwrap());
    for line in lines {
        let mut cells: Vec<String> = line.splitn(column + 2, ',').map(str::to_owned).collect();
        if let Ok(node) = cells[column].parse::<u64>() {
            cells[column] = ((node + 1) % STRANDS).to_string();
        }
        out += &cells.join(",");
        out.push('\n');
    }
    assert_ne!(text, out);
    std::fs::write(&path, out).unwrap();
}

/// Hints go unread, so what is in place comes from the plan alone; no task leaves its node.
const NEAR: [&str; 3] = ["--no-hints", "--steal", "node"];

#[test]
fn stencil2d_runs_where_the_plan_of_a_smaller_profile_says() {
    let folder = tempfile::tempdir().unwrap();
    let program = stencil(folder.path());
    let plan = planned(folder.path(), &program);

    for threads in [false, true] {
        let stats = run(&program, &NEAR, Some(&plan), threads);
        let number = |name: &str| stats[name].as_u64().unwrap();
        assert_eq!(number("unplanned"), 0, "{stats}");
        // The main task, which nothing can place, and the one that checks the result have no node.
        assert_eq!(number("planned"), TASKS - 2, "{stats}");
        assert_eq!(number("stolen_from_other_nodes"), 0, "{stats}");
        // A strand's tasks find its rectangle on their node, always; only borders come from others.
        assert!(number("local_bytes") >= RECTANGLES, "{stats}");
        assert!(number("remote_bytes") <= BORDERS, "{stats}");
    }

    // The same tasks one node further, their rectangles where they were: each is remote each time.
    rotate(&plan, "classes.csv", 3);
    for threads in [false, true] {
        let stats = run(&program, &NEAR, Some(&plan), threads);
        let number = |name: &str| stats[name].as_u64().unwrap();
        assert_eq!(number("planned"), TASKS - 2, "{stats}");
        assert!(number("remote_bytes") >= RECTANGLES, "{stats}");
        assert!(number("local_bytes") <= 2 * BORDERS, "{stats}");
    }

    // And with their data moved as well, all is near again.
    rotate(&plan, "blocks.csv", 2);
    let stats = run(&program, &NEAR, Some(&plan), true);
    assert!(
        stats["local_bytes"].as_u64().unwrap() >= RECTANGLES,
        "{stats}"
    );
}
