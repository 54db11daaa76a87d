//! Programs that use calls which public OCR programs use, beyond the core of the interface.

mod support;

use support::{SCHEDULERS, compile_file, root, run_any};

#[test]
fn older_names_verify_and_the_runtime_interface() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile_file(folder.path(), "crates/ocr/tests/c/extras.c");
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
    let program = compile_file(folder.path(), "crates/ocr/tests/c/more.c");
    let profile = folder.path().join("profile").display().to_string();
    let profiled = [("PROFILE", profile.as_str()), ("REPLAYS", "4")];
    for settings in SCHEDULERS.iter().copied().chain([&profiled[..]]) {
        let output = run_any(&program, &[], settings);
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{settings:?}: {output:?}");
        assert_eq!(printed, "copied\n", "{settings:?}");
    }
}

#[test]
fn a_returned_event_is_chained_and_mode_null_shows_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile_file(folder.path(), "crates/ocr/tests/c/returns.c");
    for settings in SCHEDULERS {
        let output = run_any(&program, &[], settings);
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{settings:?}: {output:?}");
        assert_eq!(printed, "returned\n", "{settings:?}");
    }
}

#[test]
fn calls_in_a_replay_have_no_effect() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile_file(folder.path(), "crates/ocr/tests/c/replays.c");
    let profile = folder.path().join("profile");
    let shown = profile.display().to_string();
    for settings in [
        &[("SCHEDULER", "numa"), ("WORKERS", "2")][..],
        // On a busy machine experiments may reach their time limit.
        &[("PROFILE", &shown), ("REPLAYS", "16"), ("BUDGET", "3600")],
    ] {
        let output = run_any(&program, &[], settings);
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{settings:?}: {output:?}");
        assert_eq!(printed, "12 steps, 12 children\n", "{settings:?}");
    }
    let profile = numaloc_task_plan::read_profile(&profile).unwrap();
    let replayed = |template: &str| {
        let replays = profile.replays.iter();
        replays
            .filter(|replay| profile.tasks[replay.task as usize].template == template)
            .count()
    };
    assert!(replayed("step") >= 8, "{:?}", profile.replays);
    assert!(replayed("child") >= 8, "{:?}", profile.replays);
    assert_eq!(
        profile.tasks.len(),
        1 + 12 + 12 + 1,
        "main, steps, children, the last"
    );
}

#[test]
fn the_header_is_strict_c_and_cpp() {
    let folder = tempfile::tempdir().unwrap();
    let include = format!("-I{}", root().join("crates/ocr/include").display());
    for (compiler, file, standards) in [
        ("gcc", "header.c", &["c99", "c11", "c17"][..]),
        ("clang", "header.c", &["c99", "c11", "c17"]),
        ("g++", "header.cpp", &["c++11", "c++17", "c++20"]),
        ("clang++", "header.cpp", &["c++11", "c++17", "c++20"]),
    ] {
        let source = folder.path().join(file);
        std::fs::write(&source, "#include <ocr.h>\nint unused;\n").unwrap();
        for standard in standards {
            let output = std::process::Command::new(compiler)
                .args(["-pedantic-errors", "-Wall", "-Wextra", "-fsyntax-only"])
                .arg(format!("-std={standard}"))
                .arg(&include)
                .arg(&source)
                .output();
            // clang is not everywhere.
            let Ok(output) = output else { continue };
            assert!(
                output.status.success(),
                "{compiler} {standard}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }
}
