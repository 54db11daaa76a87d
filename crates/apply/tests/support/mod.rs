//! Helpers of the launcher tests: compile test programs, build plans, run them.

#![allow(dead_code)]

use numaloc_apply::{Options, run};
use numaloc_model::outcome::Outcome;
use numaloc_model::plan::{ObjectKey, PagePlan, Plan, ThreadPlan};
use numaloc_model::profile::ObjectKind;
use numaloc_model::{LogicalNode, LogicalPu};
use numaloc_topology::{Identity, Topology};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles a program of `tests/programs` with these flags.
pub fn compile(folder: &Path, source: &str, flags: &[&str]) -> PathBuf {
    let program = folder.join(source.trim_end_matches(".c"));
    let from = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/programs")
        .join(source);
    let status = Command::new("cc")
        .args(["-O1", "-pthread", "-o"])
        .args([&program, &from])
        .args(flags)
        .status()
        .expect("a C compiler runs");
    assert!(status.success(), "{source} compiles with {flags:?}");
    program
}

/// A plan for this machine: threads by path with a logical PU each (modulo the number of PUs); all objects on
/// node 0.
pub fn plan(machine: &Topology, threads: &[(&str, usize)], objects: &[(ObjectKey, u64)]) -> Plan {
    let pus = machine.pus();
    Plan {
        threads: threads
            .iter()
            .map(|&(path, pu)| ThreadPlan {
                path: path.to_owned(),
                pu: LogicalPu::from_index(pu % pus.len()),
                os_pu: pus[pu % pus.len()].os,
            })
            .collect(),
        objects: objects.iter().map(|(key, _)| key.clone()).collect(),
        pages: objects
            .iter()
            .enumerate()
            .map(|(object, &(_, pages))| PagePlan {
                object: object as u32,
                first_page: 0,
                pages,
                node: LogicalNode(0),
                os_node: machine.nodes()[0].os,
            })
            .collect(),
        ..Plan::by_hand(machine.name(), &machine.fingerprint())
    }
}

/// The first object of that kind, name, creator and size.
pub fn key(kind: ObjectKind, name: &str, creator: &str, size: u64) -> ObjectKey {
    ObjectKey {
        kind,
        name: name.to_owned(),
        creator: Some(creator.to_owned()),
        size,
        order: 0,
    }
}

/// A command line.
pub fn command(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

/// Runs a shell script under a plan.
pub fn shell(plan: &Plan, machine: &Topology, script: &str) -> Outcome {
    run(
        plan,
        &Identity::from(machine),
        &command(&["sh", "-c", script]),
        &Options::default(),
    )
    .expect("sh runs")
}

/// Reports that a test cannot run here; fails in CI, where that would go unnoticed.
pub fn skip(why: &str) {
    let ci = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(!ci, "skipped, which CI=true does not allow: {why}");
    println!("SKIPPED: {why}");
}
