//! Only the crate `sys` changes machine state (ARCHITECTURE.md): the calls that do are named in no other crate's code,
//! and only `apply`, `outside`, the task runtime and the commands that measure (`compare`, `validate`, `machines
//! calibrate`) use it.

use std::fs;
use std::path::{Path, PathBuf};

/// Names of what changes the place of threads or memory: system calls, functions of libc, rustix and hwloc's bindings,
/// and the kernel's switches. Parts of longer names count too. C code has none: what is in `lab` runs in a virtual
/// machine.
const CHANGES: [&str; 16] = [
    "setaffinity",
    "CPU_SET",
    "SYS_mbind",
    "::mbind",
    "set_mempolicy",
    "SYS_move_pages",
    "migrate_pages",
    "SYS_setpriority",
    "::setpriority",
    "setscheduler",
    "sched_setattr",
    "bind_cpu",
    "bind_memory",
    "/proc/sys/kernel/numa_balancing",
    "sched/numa_balancing",
    "clear_refs",
];

/// Rust files below `folder` that are part of what is shipped: no tests, benchmarks or examples.
fn shipped(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if !["tests", "benches", "examples", "target"].contains(&name.as_str()) {
                found.extend(shipped(&path));
            }
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
    found
}

/// The code of a file without comments.
fn code(text: &str) -> String {
    let lines = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or(""));
    lines.collect::<Vec<_>>().join("\n")
}

/// The lines of `code` that name a change.
fn changes(code: &str) -> Vec<&str> {
    let named = |line: &&str| CHANGES.iter().any(|name| line.contains(name));
    code.lines().filter(named).collect()
}

#[test]
fn calls_that_change_the_machine_are_found() {
    let found = |text: &str| changes(&code(text)).len();
    assert_eq!(found("libc::syscall(libc::SYS_mbind, memory)"), 1);
    assert_eq!(found("libc::sched_setaffinity(0, 8, set);"), 1);
    assert_eq!(found("libc::getpid(); // not mbind"), 0);
}

#[test]
fn only_sys_changes_machine_state() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let crates = crates.canonicalize().unwrap();
    let mut of_sys = 0;
    for path in shipped(&crates) {
        let file = path.strip_prefix(&crates).unwrap().to_string_lossy();
        let text = fs::read_to_string(&path).unwrap();
        let code = code(&text);
        let found = changes(&code);
        if file.starts_with("sys/") {
            of_sys += found.len();
        } else {
            assert!(
                found.is_empty(),
                "crates/{file} changes the machine: {found:?}"
            );
        }
    }
    assert!(of_sys >= 4, "sys itself was not searched: {of_sys} places");
}

#[test]
fn only_apply_the_task_runtime_and_commands_that_measure_use_sys() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let crates = crates.canonicalize().unwrap();
    let users = [
        "apply/",
        "outside/",
        "sys/",
        "tasks/",
        "numaloc/src/commands/compare",
        "numaloc/src/commands/machines/measure.rs",
        "numaloc/src/commands/validate",
    ];
    for path in shipped(&crates) {
        let file = path.strip_prefix(&crates).unwrap().to_string_lossy();
        let text = fs::read_to_string(&path).unwrap();
        if code(&text).contains("numaloc_sys") {
            let is_user = users.iter().any(|user| file.starts_with(user));
            assert!(is_user, "crates/{file} uses sys");
        }
    }
}
