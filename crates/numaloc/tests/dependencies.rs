//! `use` points downward only: the crate table of ARCHITECTURE.md, checked.

use std::collections::BTreeSet;

/// Crate, and which of ours it may use. A crate that is not listed fails the test: say what it may use.
const MAY_USE: &[(&str, &[&str])] = &[
    ("numaloc-model", &[]),
    ("numaloc-files", &[]),
    ("numaloc-topology", &["numaloc-model", "numaloc-files"]),
    ("numaloc-access-trace", &[]),
    (
        "numaloc-formats",
        &["numaloc-model", "numaloc-access-trace", "numaloc-files"],
    ),
    ("numaloc-trace", &["numaloc-model", "numaloc-access-trace"]),
    ("numaloc-qemu", &["numaloc-trace"]),
    ("numaloc-instrument", &["numaloc-trace"]),
    ("numaloc-native", &[]),
    ("numaloc-perf", &["numaloc-model"]),
    ("numaloc-mpi", &["numaloc-model", "numaloc-topology"]),
    ("numaloc-analysis", &["numaloc-model"]),
    ("numaloc-mapping", &["numaloc-model", "numaloc-topology"]),
    (
        "numaloc-placement",
        &["numaloc-model", "numaloc-topology", "numaloc-mapping"],
    ),
    ("numaloc-apply", &["numaloc-model", "numaloc-topology"]),
    ("numaloc-sim", &["numaloc-model", "numaloc-topology"]),
    (
        "numaloc-lab",
        &["numaloc-model", "numaloc-topology", "numaloc-files"],
    ),
    ("numaloc-lab-plugin", &[]),
    ("numaloc-task-queues", &[]),
    (
        "numaloc-task-plan",
        &["numaloc-model", "numaloc-topology", "numaloc-files"],
    ),
    (
        "numaloc-tasks",
        &[
            "numaloc-model",
            "numaloc-topology",
            "numaloc-task-plan",
            "numaloc-task-queues",
        ],
    ),
    ("numaloc-ocr", &["numaloc-tasks"]),
    (
        "numaloc-report",
        &["numaloc-model", "numaloc-analysis", "numaloc-topology"],
    ),
];

#[test]
fn crates_use_only_what_lies_below_them() {
    let output = std::process::Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo metadata runs");
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let mut seen = 0;
    for package in metadata["packages"].as_array().expect("packages") {
        let name = package["name"].as_str().expect("name");
        if name == "numaloc" {
            continue;
        }
        let allowed: BTreeSet<&str> = MAY_USE
            .iter()
            .find(|(listed, _)| *listed == name)
            .unwrap_or_else(|| panic!("{name} is not in the table: say what it may use"))
            .1
            .iter()
            .copied()
            .collect();
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let used = dependency["name"].as_str().expect("name");
            // Tests may look across; shipped code may not.
            if used.starts_with("numaloc") && dependency["kind"] != "dev" {
                assert!(allowed.contains(used), "{name} may not use {used}");
            }
        }
        seen += 1;
    }
    assert!(seen >= 2, "found only {seen} crates");
}
