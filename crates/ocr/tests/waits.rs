//! Waiting inside tasks, on every scheduler: an event that fires ends the wait, one that never fires ends the run with
//! a report.

mod support;

use std::process::Output;
use support::{SCHEDULERS, compile_file, run_any};

/// Runs `case` on every scheduler, on oneTBB with one thread, and as a profiling run.
fn everywhere(case: &str, mut check: impl FnMut(&Output, &[(&str, &str)])) {
    let folder = tempfile::tempdir().unwrap();
    let program = compile_file(folder.path(), "crates/ocr/tests/c/waits.c");
    let profile = folder.path().join("profile").display().to_string();
    let more = [
        &[("SCHEDULER", "tbb"), ("WORKERS", "1")][..],
        &[("PROFILE", &profile), ("REPLAYS", "4")],
    ];
    for settings in SCHEDULERS.iter().copied().chain(more) {
        let output = run_any(&program, &[case], settings);
        check(&output, settings);
    }
}

fn stderr_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_wait_ends_when_its_event_fires() {
    everywhere("served", |output, settings| {
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{settings:?}: {output:?}"
        );
    });
}

/// With waits nested on one stack, a task whose event has fired stays below one that waits for it.
#[test]
fn tasks_that_wait_for_each_other_in_turn_end() {
    for _ in 0..5 {
        everywhere("turns", |output, settings| {
            assert!(
                output.status.success() && output.stdout == b"all ended\n",
                "{settings:?}: {output:?}"
            );
        });
    }
}

#[test]
fn a_thousand_tasks_wait_at_a_time_and_keep_their_blocks_and_storage() {
    everywhere("many", |output, settings| {
        assert!(
            output.status.success() && output.stdout == b"all ended\n",
            "{settings:?}: {output:?}"
        );
    });
}

#[test]
fn a_wait_for_an_event_that_never_fires_ends_the_run_and_names_task_and_event() {
    for (case, words) in [
        (
            "never",
            &["waiter (0x", "waits for event 0x", "STICKY, not satisfied"][..],
        ),
        (
            "held",
            &[
                "waiter (0x",
                "waits for event 0x",
                "needs_the_block (0x",
                "needs data block 0x",
                "(slot 0, RW), which task waiter (0x",
            ],
        ),
        ("two", &["task one (0x", "task other (0x"]),
        (
            "label",
            &["waits for label 0x", "nothing was created under it"],
        ),
    ] {
        everywhere(case, |output, settings| {
            let stderr = stderr_of(output);
            assert_eq!(
                output.status.code(),
                Some(1),
                "{case} {settings:?}: {stderr}"
            );
            assert!(stderr.contains("deadlock"), "{case} {settings:?}: {stderr}");
            for word in words {
                assert!(
                    stderr.contains(word),
                    "{case} {settings:?}: {word} not in {stderr}"
                );
            }
        });
    }
}

#[test]
fn a_shutdown_while_a_task_waits_ends_the_run_and_names_the_task() {
    everywhere("shutdown", |output, settings| {
        let stderr = stderr_of(output);
        assert_eq!(output.status.code(), Some(0), "{settings:?}: {stderr}");
        for word in [
            "ocrShutdown was called",
            "task waiter (0x",
            "waits for event 0x",
        ] {
            assert!(
                stderr.contains(word),
                "{settings:?}: {word} not in {stderr}"
            );
        }
    });
}
