//! `numaloc advise` on programs with a known remedy: what it predicts is what the remedied program shows.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::{numaloc, ok};

/// Records a program of `tests/advise`, built with these flags, with 8 threads.
fn recorded(folder: &Path, source: &str, flags: &[&str], options: &[&str]) -> PathBuf {
    let program = folder.join(format!("{source}{}", flags.concat()));
    let profile = program.with_added_extension("numaloc");
    let compiler = if source.ends_with(".cc") { "c++" } else { "cc" };
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/advise")
        .join(source);
    ok(Command::new(compiler)
        .args(["-O2", "-g", "-fopenmp", "-pthread", "-o"])
        .arg(&program)
        .args(flags)
        .arg(source));
    ok(numaloc(&["--quiet", "record"])
        .args(options)
        .arg("-o")
        .arg(&profile)
        .arg(&program)
        .env("OMP_NUM_THREADS", "8"));
    profile
}

const TRACED: [&str; 1] = ["--advise"];

fn advised(profile: &Path) -> Value {
    let text =
        ok(numaloc(&["--json", "--quiet", "advise", "--machine", "skylake-4s"]).arg(profile));
    serde_json::from_str(&text).expect("one object")
}

fn seconds(value: &Value) -> f64 {
    value.as_f64().expect("a time")
}

#[test]
fn initialising_in_parallel_is_worth_what_the_changed_program_shows() {
    let folder = tempfile::tempdir().unwrap();
    let before = recorded(folder.path(), "triad.c", &["-DN=100000"], &TRACED);
    let found = advised(&before);
    let first = &found["changes"][0];
    assert_eq!(first["change"], "touch_by_users", "{found}");
    assert!(first["places"].to_string().contains("triad.c:"), "{first}");
    assert!(
        first["write"].to_string().contains("omp parallel for"),
        "{first}"
    );
    assert_eq!(first["uses"][0]["threads"], 8, "{first}");
    let after = recorded(
        folder.path(),
        "triad.c",
        &["-DN=100000", "-DAFTER"],
        &TRACED,
    );
    let changed = advised(&after);
    let (predicted, made) = (seconds(&first["after_s"]), seconds(&changed["as_it_is_s"]));
    assert!(
        made < 0.7 * seconds(&found["as_it_is_s"]),
        "{made}: {found}"
    );
    assert!(
        (predicted / made - 1.0).abs() < 0.1,
        "{predicted} s predicted, {made} s made"
    );
    let diff = ["--json", "diff", "--machine", "skylake-4s"];
    let differs = |a: &Path, b: &Path| -> Value {
        let text = ok(numaloc(&diff).arg(a).arg(b));
        serde_json::from_str(&text).expect("one object")
    };
    let better = &differs(&before, &after)["better"];
    assert_eq!(better["judgement"], "better", "{better}");
    let gone = better["problems_gone"].to_string();
    assert!(gone.contains("first touch"), "{better}");
    let worse = &differs(&after, &before)["better"];
    assert_eq!(
        (&worse["judgement"], &worse["problems_new"]),
        (&"worse".into(), &better["problems_gone"])
    );
    let same = &differs(&after, &after)["better"];
    assert_eq!(same["judgement"], "same", "{same}");
}

#[test]
fn false_sharing_is_named_with_its_variable_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let found = advised(&recorded(
        folder.path(),
        "counters.cc",
        &["-DN=200000"],
        &TRACED,
    ));
    let first = &found["changes"][0];
    assert_eq!(first["change"], "separate", "{found}");
    let subject = first["subject"].as_str().unwrap();
    assert!(subject.contains("counters (counters.cc:"), "{subject}");
    assert!(
        seconds(&found["best_s"]) < 0.5 * seconds(&found["as_it_is_s"]),
        "{found}"
    );
}

#[test]
fn a_program_without_a_problem_has_nothing_to_change() {
    let folder = tempfile::tempdir().unwrap();
    // Long enough that its barriers, which threads of one node pass sooner, are less than half of the 2 %.
    let profile = recorded(
        folder.path(),
        "triad.c",
        &["-DN=250000", "-DAFTER"],
        &TRACED,
    );
    let text = ok(numaloc(&["advise", "--machine", "skylake-4s"]).arg(&profile));
    assert!(
        text.starts_with("Answer   nothing to change: no change saves more than 2 % of "),
        "{text}"
    );
    assert!(text.contains("\nBound    "), "{text}");
}

#[test]
fn what_cannot_be_advised_on_is_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |profile: &Path, options: &[&str], words: &str| {
        let output = numaloc(&["advise", "--machine"])
            .args(options)
            .arg(profile)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && output.stdout.is_empty(),
            "{text}"
        );
        assert!(text.contains(words), "{text}");
    };
    let traced = recorded(folder.path(), "total.c", &["-DAFTER"], &["--advise"]);
    refused(&traced, &["numa:2 core:2 pu:1"], "no hardware figures");
    let one_kind = "error: cannot try tier: tier needs memory of several kinds, and all nodes of the machine have the same\n";
    refused(&traced, &["skylake-4s", "--only", "tier"], one_kind);
}

/// On a machine with memory of two kinds both ways are tried, each for the objects that one function initialises.
#[test]
fn pages_are_dealt_over_memory_of_different_speed() {
    let folder = tempfile::tempdir().unwrap();
    let profile = recorded(folder.path(), "triad.c", &["-DN=250000"], &TRACED);
    let only = ["--only", "tier,weighted_interleave,interleave"];
    let mut command = numaloc(&["--json", "--quiet", "advise", "--machine", "cxl-2s"]);
    let found = ok(command.args(only).arg(&profile));
    let found: Value = serde_json::from_str(&found).unwrap();
    let alone = found["alone"].as_array().unwrap();
    let of = |name: &str| {
        let mut rows = alone.iter().filter(|row| row["change"] == name);
        let row = rows.next().unwrap_or_else(|| panic!("{name}: {found}"));
        seconds(&row["after_s"])
    };
    // Dealt evenly, half of the pages are on expanders with a tenth of the bandwidth.
    let (even, weighted, tier) = (of("interleave"), of("weighted_interleave"), of("tier"));
    assert!(weighted < even && tier < even, "{found}");
}

#[test]
fn without_a_whole_trace_the_model_answers() {
    let folder = tempfile::tempdir().unwrap();
    let untraced = recorded(folder.path(), "triad.c", &[], &[]);
    let found = advised(&untraced);
    assert_eq!(found["basis"], "model");
    assert_eq!(found["changes"][0]["change"], "touch_by_users", "{found}");
    let advised = ok(numaloc(&["advise", "--machine", "skylake-4s"]).arg(&untraced));
    assert!(
        advised.contains("the profile has no access trace"),
        "{advised}"
    );
    let shown = ok(numaloc(&["show", "--machine", "skylake-4s"]).arg(&untraced));
    for words in [
        "Problem  first touch: the main thread initialises memory that 8 threads use",
        "triad.c:",
        "#pragma omp parallel for",
        "numaloc record --advise -o ",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let windows = recorded(
        folder.path(),
        "total.c",
        &["-DAFTER"],
        &["--trace", "--trace-windows", "5%"],
    );
    let advised = ok(numaloc(&["advise", "--machine", "purple"]).arg(&windows));
    assert!(
        advised.contains("an access trace of windows only"),
        "{advised}"
    );
}
