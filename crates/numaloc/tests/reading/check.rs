//! `numaloc check`: limits kept and exceeded, spread of runs, exit status, and what cannot be checked.

use std::path::{Path, PathBuf};
use std::process::Output;

use crate::support::numaloc;
use numaloc_model::pages::{PageHead, ThreadAccess};
use numaloc_model::profile::{Clock, CommRow, Meta, ProfileBuilder, Slice, Thread};
use numaloc_model::{Layer, PageNumber, SliceIdx, ThreadIdx};
use serde_json::Value;

/// Two threads, each with its page; `remote` of 1000 accesses of the second thread go to the first one's page.
fn profile(folder: &Path, name: &str, remote: u64) -> PathBuf {
    let path = folder.join(name);
    let meta = Meta::new("test", Clock::Virtual);
    let mut tables = ProfileBuilder::new(meta, 4096);
    tables.threads = vec![Thread::new("0"), Thread::new("0.0")];
    tables.slices = vec![Slice { start: 0, end: 10 }];
    let row = |src, dst| CommRow {
        slice: SliceIdx(0),
        src: ThreadIdx(src),
        dst: ThreadIdx(dst),
        layer: Layer::WriteRead,
        events: 10,
        bytes: 80,
    };
    tables.communication = vec![row(0, 1), row(1, 0)];
    let access = |thread, reads| ThreadAccess {
        thread: ThreadIdx(thread),
        reads,
        writes: 0,
    };
    let head = |page: u64, first| PageHead {
        number: PageNumber(page),
        object: None,
        object_page: 0,
        first_touch: Some(ThreadIdx(first)),
        first_touch_time: 0,
        policy: None,
    };
    tables.page(head(1, 0), [access(0, 1000), access(1, remote)]);
    tables.page(head(2, 1), [access(1, 1000 - remote)]);
    let profile = tables.build().unwrap();
    numaloc_formats::profile::write(&profile, &path, false).unwrap();
    path
}

fn check(profiles: &[&Path], against: &[&Path], options: &[&str]) -> Output {
    let mut command = numaloc(&["check", "--nodes", "2"]);
    command.args(profiles);
    for path in against {
        command.arg("--against").arg(path);
    }
    command.args(options).output().expect("it runs")
}

#[test]
fn a_limit_that_is_exceeded_is_exit_status_3_and_a_line_of_the_summary() {
    let dir = tempfile::tempdir().unwrap();
    let before = profile(dir.path(), "before.numaloc", 200);
    let (same, worse) = (
        profile(dir.path(), "same.numaloc", 205),
        profile(dir.path(), "worse.numaloc", 300),
    );
    let kept = check(&[&same], &[&before], &["--max", "remote=+5%"]);
    let page = String::from_utf8(kept.stdout).unwrap();
    assert_eq!(kept.status.code(), Some(0), "{page}");
    assert!(page.contains("locality is within its limits"), "{page}");
    let exceeded = check(&[&worse], &[&before], &["--max", "remote=+5%"]);
    let page = String::from_utf8(exceeded.stdout).unwrap();
    assert_eq!(exceeded.status.code(), Some(3), "{page}");
    // 200 and 300 of 2000 accesses.
    let row = "| 10.00 % | 15.00 % | +5.00 pp | +5 % | one run | **exceeded** |";
    assert!(
        page.contains("locality got worse") && page.contains(row),
        "{page}"
    );
    // A decrease of the same figure is never too much.
    let better = check(&[&before], &[&worse], &["--max", "remote=+5%"]);
    assert_eq!(better.status.code(), Some(0));
}

#[test]
fn a_change_within_the_spread_of_the_runs_is_no_regression() {
    let dir = tempfile::tempdir().unwrap();
    let [low, middle, high, far] = [150, 200, 280, 340]
        .map(|remote| profile(dir.path(), &format!("{remote}.numaloc"), remote));
    let json = ["--max", "remote=+5%", "--json"];
    let within = check(&[&high], &[&low, &middle, &high], &json);
    assert_eq!(within.status.code(), Some(0));
    let shown: Value = serde_json::from_slice(&within.stdout).unwrap();
    let figure = &shown["figures"][0];
    assert_eq!(figure["outcome"], "within_spread");
    assert!((figure["spread"].as_f64().unwrap() - 0.065).abs() < 1e-12);
    assert!((figure["worse_by"].as_f64().unwrap() - 0.04).abs() < 1e-12);
    assert_eq!(shown["passed"], true);
    let beyond = check(&[&far], &[&low, &middle, &high], &json);
    assert_eq!(beyond.status.code(), Some(3));
    let shown: Value = serde_json::from_slice(&beyond.stdout).unwrap();
    assert_eq!(shown["figures"][0]["outcome"], "exceeded");
    assert!(
        shown["markdown"]
            .as_str()
            .unwrap()
            .contains("3 baseline runs and 1 new run")
    );
}

#[test]
fn what_cannot_be_checked_is_an_error_and_not_a_pass() {
    let dir = tempfile::tempdir().unwrap();
    let one = profile(dir.path(), "one.numaloc", 100);
    let said = |options: &[&str]| {
        let output = check(&[&one], &[&one], options);
        let text = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), text)
    };
    let (status, text) = said(&["--max", "dram_ratio=+5%"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(
        text.contains("cannot check dram_ratio of") && text.contains("not observed"),
        "{text}"
    );
    let (status, text) = said(&["--max", "remoteness=+5%"]);
    assert_eq!(status, Some(2), "{text}");
    assert!(text.contains("there is no figure \"remoteness\""), "{text}");
    let (status, text) = said(&["--max", "remote=5%"]);
    assert_eq!(status, Some(2), "{text}");
    let (status, _) = said(&[]);
    assert_eq!(status, Some(2));
    let missing = check(
        &[&dir.path().join("none")],
        &[&one],
        &["--max", "remote=+5%"],
    );
    assert_eq!(missing.status.code(), Some(1));
}
