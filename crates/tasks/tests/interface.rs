//! Programs that use calls which public OCR programs use, beyond the core of the interface.

mod support;

use support::{SCHEDULERS, compile_file, run_any};

#[test]
fn older_names_verify_and_the_runtime_interface() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile_file(folder.path(), "crates/tasks/tests/c/extras.c");
    let profile = folder.path().join("profile").display().to_string();
    let profiled = [("PROFILE", profile.as_str()), ("REPLAYS", "4")];
    for settings in SCHEDULERS.iter().copied().chain([&profiled[..]]) {
        let output = run_any(&program, &[], settings);
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{settings:?}: {output:?}");
        assert!(printed.contains("PASSED @ '"), "{printed}");
        assert!(printed.contains("arithmetic holds, workers: "), "{printed}");
        assert!(printed.contains("FAILURE @ '"), "{printed}");
    }
}

#[test]
fn maps_kinds_copies_and_allocation_in_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile_file(folder.path(), "crates/tasks/tests/c/more.c");
    let profile = folder.path().join("profile").display().to_string();
    let profiled = [("PROFILE", profile.as_str()), ("REPLAYS", "4")];
    for settings in SCHEDULERS.iter().copied().chain([&profiled[..]]) {
        let output = run_any(&program, &[], settings);
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{settings:?}: {output:?}");
        assert_eq!(printed, "copied\n", "{settings:?}");
    }
}
