//! `numaloc record --frontend perf`: on a machine with memory events it records, on any other it says in one line
//! what is missing and what to use instead, and the program has not run.

use std::path::Path;
use std::process::Output;

use assert_cmd::Command;

/// Records `program` in `folder` into `t.numaloc`.
fn record(folder: &Path, options: &[&str], program: &[&str]) -> Output {
    Command::cargo_bin("numaloc")
        .unwrap()
        .args(["record", "--frontend", "perf", "-o", "t.numaloc"])
        .args(options)
        .arg("--")
        .args(program)
        .current_dir(folder)
        .output()
        .unwrap()
}

#[test]
fn the_program_is_sampled_or_the_error_says_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let output = record(folder.path(), &[], &["touch", "ran"]);
    let message = String::from_utf8_lossy(&output.stderr);
    let ran = folder.path().join("ran").exists();
    match numaloc_perf::events::discover(Path::new(numaloc_perf::events::SYSFS)) {
        Ok(_) => assert!(ran || message.contains("perf_event_paranoid"), "{message}"),
        Err(missing) => {
            assert_eq!(output.status.code(), Some(125));
            let mut lines = message.lines();
            assert_eq!(lines.next(), Some(format!("error: {missing}").as_str()));
            assert!(
                lines
                    .next()
                    .unwrap()
                    .starts_with("  try: numaloc record --frontend qemu")
            );
            assert!(!ran && !folder.path().join("t.numaloc").exists());
        }
    }
}

#[test]
fn first_touches_are_recorded_on_any_machine_and_the_status_passes_through() {
    let folder = tempfile::tempdir().unwrap();
    let program = "import threading, sys\n\
        def work(): b = bytearray(1 << 20); b[::4096] = bytes(256)\n\
        t = threading.Thread(target=work); t.start(); t.join()\n\
        print('done'); sys.exit(7)\n";
    let command = ["/usr/bin/python3", "-c", program];
    let output = record(folder.path(), &["--event", "page-faults"], &command);
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(output.stdout, b"done\n");
    let profile = numaloc_formats::profile::read(&folder.path().join("t.numaloc")).unwrap();
    assert_eq!(profile.threads().len(), 2);
    let by_second = profile
        .pages()
        .pages()
        .iter()
        .filter(|page| page.first_touch.is_some_and(|thread| thread.0 == 1))
        .count();
    assert!(by_second >= 256, "{by_second} pages");
}

#[test]
fn a_killed_program_leaves_a_profile_that_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let command = ["sh", "-c", "kill -9 $$"];
    let output = record(folder.path(), &["--event", "page-faults"], &command);
    assert_eq!(output.status.code(), Some(137));
    let profile = numaloc_formats::profile::read(&folder.path().join("t.numaloc")).unwrap();
    assert!(!profile.meta().complete);
}
