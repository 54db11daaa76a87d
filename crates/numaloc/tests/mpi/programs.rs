//! The MPI programs of `workloads/mpi`, built for an MPI library.

use std::process::Command;

use crate::support::root;

/// Path of a program, built if it is not up to date.
pub fn workload(library: &str, name: &str) -> String {
    let target = format!("target/workloads/mpi/{library}/{name}");
    let made = Command::new("make")
        .args(["-s", &target])
        .current_dir(root())
        .output()
        .expect("make");
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    root().join(target).to_string_lossy().into_owned()
}
