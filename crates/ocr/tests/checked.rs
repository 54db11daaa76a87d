//! Checked mode names the task, the object and the slot, also when the program crashes.

mod support;

use std::os::unix::process::ExitStatusExt;
use support::{compile_file, run_any};

#[test]
fn checked_mode_names_task_object_and_slot() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile_file(folder.path(), "crates/ocr/tests/c/misuse.c");
    for workers in ["1", "3"] {
        for (case, words, signal) in [
            ("stale", &["ocrEventSatisfy", "slot 0"][..], None),
            (
                "slot",
                &["ocrAddDependence", "slot 3", "(100 bytes)", "STICKY"],
                None,
            ),
            (
                "crash",
                &[
                    "SIGSEGV",
                    "address 0x8",
                    "slot 0: data block ",
                    "RO, 100 bytes",
                ],
                Some(libc::SIGSEGV),
            ),
            // The thread's own stack is exhausted.
            (
                "deep",
                &["SIGSEGV", "slot 0: data block "],
                Some(libc::SIGSEGV),
            ),
        ] {
            let settings = [("CHECKED", "1"), ("WORKERS", workers)];
            let output = run_any(&program, &[case], &settings);
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.signal(), signal, "{case}: {stderr}");
            let printed = String::from_utf8_lossy(&output.stdout);
            for word in words
                .iter()
                .copied()
                .chain(["task culprit (0x", printed.trim()])
            {
                assert!(stderr.contains(word), "{case}: {word} not in {stderr}");
            }
        }
    }
}
