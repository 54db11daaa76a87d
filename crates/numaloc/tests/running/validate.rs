//! `numaloc validate` on this machine: kernels that are recorded as any program, and a page.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{fails, numaloc, ok};

fn kernel(name: &str, more: &[&str]) -> Command {
    numaloc(&[&["validate", "--kernel", name], more].concat())
}

#[test]
fn a_kernel_reports_its_time_its_pages_and_its_threads() {
    let size = ["--threads", "3", "--size", "3M", "--iterations", "4"];
    let line = ok(&mut kernel("triad", &size));
    let found: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(found["kernel"], "triad");
    assert_eq!(found["iterations"], 4);
    let sum = |rows: &str, field: &str| -> f64 {
        let rows = found[rows].as_array().unwrap().iter();
        rows.map(|row| row[field].as_f64().unwrap()).sum()
    };
    if found["unknown"].is_null() {
        // 3 MiB in nine blocks, each with parts of two pages more at most.
        let pages = sum("pages_by_node", "pages");
        assert!((768.0..=768.0 + 18.0).contains(&pages), "{line}");
    }
    assert!((sum("threads_by_node", "share") - 1.0).abs() < 1e-9);
    for field in ["initial_s", "iterations_s"] {
        assert!(found[field].as_f64().unwrap() > 0.0, "{line}");
    }
}

#[test]
fn mistakes_of_a_kernels_command_line_are_one_line_each() {
    let error = fails(&mut kernel("nonesuch", &[]), 2);
    assert!(error.contains("unknown kernel `nonesuch`"), "{error}");
    assert!(error.contains("triad, triad-local"), "{error}");
    for (options, expected) in [
        (&["--threads", "0"][..], "a number from 1 to 65536"),
        (&["--size", "many"], "--size many"),
        (
            &["--iterations"],
            "`--iterations` is no option with a value",
        ),
        (&["--nodes", "2"], "`--nodes` is no option with a value"),
        (&["--interleave", "x"], "numbers of nodes"),
    ] {
        let error = fails(&mut kernel("triad", options), 2);
        assert!(error.contains(expected), "{options:?}: {error}");
    }
}

/// The recording of a kernel has the accesses that are known by construction, and little else.
#[test]
fn a_recorded_kernel_has_the_accesses_of_its_loops() {
    let folder = tempfile::tempdir().unwrap();
    let size = ["--threads", "2", "--size", "3M", "--iterations", "20"];
    let text = ok(
        numaloc(&["--quiet", "--json", "record", "-o", "p.numaloc", "--"])
            .arg(env!("CARGO_BIN_EXE_numaloc"))
            .args(["validate", "--kernel", "triad"])
            .args(size)
            .current_dir(folder.path()),
    );
    // The kernel's own line comes first.
    let found: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let accesses = found["accesses"].as_u64().unwrap() as f64;
    // Two loads and a store for each of 128 Ki elements in each iteration. In a build without optimisation there are
    // others on the stack.
    let least = 20.0 * 3.0 * 131_072.0;
    assert!(accesses > least, "{accesses}: {text}");
}

/// The object and the page of a validation with these options.
fn validation(folder: &Path, options: &[&str]) -> (Value, String) {
    let quick = ["--quiet", "--json", "validate", "--quick", "-o", "v.html"];
    let quick = [&quick[..], &["--threads", "2", "--seconds", "0.01"]].concat();
    let text = ok(numaloc(&[&quick, options].concat()).current_dir(folder));
    let page = std::fs::read_to_string(folder.join("v.html")).unwrap();
    (serde_json::from_str(&text).unwrap(), page)
}

#[test]
fn a_kernel_is_recorded_predicted_run_and_judged() {
    let folder = tempfile::tempdir().unwrap();
    let options = [
        "--kernels",
        "triad",
        "--variants",
        "pinned,plan,interleave,online-pmu",
    ];
    let (found, page) = validation(folder.path(), &options);
    assert_eq!(found["complete"], true);
    let kernels = found["kernels"].as_array().unwrap();
    assert_eq!(kernels.len(), 1);
    let rows = kernels[0]["variants"].as_array().unwrap();
    let names: Vec<&str> = rows
        .iter()
        .map(|row| row["variant"].as_str().unwrap())
        .collect();
    assert_eq!(names[0], "none");
    assert!(
        names.contains(&"pinned") && names.contains(&"plan"),
        "{names:?}"
    );
    for row in rows {
        assert_eq!(row["runs"], 3, "{row}");
        let wall = row["wall_s"][0].as_f64().unwrap();
        assert!(row["seconds"][0].as_f64().unwrap() <= wall, "{row}");
    }
    let recording = &kernels[0]["recording"];
    assert!(recording["accesses"].as_u64().unwrap() > 1000);
    let predicted: Vec<&str> = recording["predictions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["variant"].as_str().unwrap())
        .collect();
    assert_eq!(predicted[..4], ["none", "interleave", "pinned", "plan"]);
    // The summary counts what the kernels list.
    let judged = kernels[0]["judged"].as_array().unwrap();
    let of = |topic: &Value, outcome: &str| {
        let same = |row: &&Value| row["topic"] == *topic && row["outcome"] == outcome;
        judged.iter().filter(same).count() as u64
    };
    for row in found["summary"].as_array().unwrap() {
        for outcome in ["held", "failed", "open", "untested"] {
            assert_eq!(
                row[outcome].as_u64(),
                Some(of(&row["topic"], outcome)),
                "{row}"
            );
        }
    }
    // What was asked for and cannot be done has a reason.
    let left: Vec<&str> = found["left_out"]
        .as_array()
        .unwrap()
        .iter()
        .map(|left| left["what"].as_str().unwrap())
        .collect();
    for variant in ["interleave", "online-pmu"] {
        let named = left
            .iter()
            .any(|what| what.contains(&format!("variant {variant}")));
        assert_ne!(named, names.contains(&variant), "{left:?} {names:?}");
    }
    let one_node = found["machine"]["nodes"].as_array().unwrap().len() == 1;
    assert_eq!(one_node, page.contains("This machine has one NUMA node."));
    assert!(
        page.contains("id=\"kernel-triad\"") && page.contains("What did not hold")
            || page.contains("How many")
    );
    assert!(!page.contains("src=\"http") && page.ends_with("</html>\n"));
    // An existing page is kept.
    let error = fails(
        numaloc(&["validate", "-o", "v.html"]).current_dir(folder.path()),
        1,
    );
    assert!(error.contains("v.html"), "{error}");
}

#[test]
fn what_was_measured_before_an_interruption_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let mut running = numaloc(&["--json", "validate", "--seconds", "0.05", "--threads", "2"])
        .args([
            "--runs",
            "999",
            "--size",
            "1M",
            "--kernels",
            "private,triad",
        ])
        .args(["--variants", "pinned", "-o", "v.html"])
        .current_dir(folder.path())
        .env("TMPDIR", folder.path())
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(folder.path().join("said")).unwrap())
        .spawn()
        .unwrap();
    let said = || std::fs::read_to_string(folder.path().join("said")).unwrap();
    let start = Instant::now();
    // The report of the second run under a plan: both variants have been run once by then.
    let mut reports = BTreeSet::new();
    while reports.len() < 2 {
        assert!(start.elapsed() < Duration::from_secs(300), "{}", said());
        std::thread::sleep(Duration::from_millis(5));
        let folders = std::fs::read_dir(folder.path()).unwrap();
        let files = folders.map(|entry| entry.unwrap().path().join("private/applied.json"));
        let files = files.filter_map(|file| std::fs::metadata(file).ok());
        reports.extend(files.filter_map(|file| file.modified().ok()));
    }
    ok(Command::new("kill").args(["-INT", &running.id().to_string()]));
    let mut text = String::new();
    std::io::Read::read_to_string(&mut running.stdout.take().unwrap(), &mut text).unwrap();
    assert_eq!(running.wait().unwrap().code(), Some(130), "{}", said());
    let found: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(found["complete"], false);
    let runs = &found["kernels"][0]["variants"][0]["runs"];
    assert!((1..999).contains(&runs.as_u64().unwrap()), "{runs}");
    let page = std::fs::read_to_string(folder.path().join("v.html")).unwrap();
    assert!(page.contains("This validation was interrupted"));
    assert!(said().contains("interrupted: the page has what was measured"));
}
