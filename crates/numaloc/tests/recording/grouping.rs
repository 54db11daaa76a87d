//! The plugin reports accesses by block: the addresses that it predicts are those that QEMU reports, and counts are the
//! same as with individual accesses.
//!
//! Needs qemu-x86_64, gcc and the plugin (`cargo build --workspace` first).

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{chosen, workload};
use numaloc_assemble::{Options, assemble};
use numaloc_model::{Layer, Profile};

/// Runs a program with the plugin.
fn recorded(group: &str, threads: u32, command: &[&str]) -> Profile {
    let folder = tempfile::tempdir().unwrap();
    let plugin = Path::new(env!("CARGO_BIN_EXE_numaloc")).with_file_name("libnumaloc_qemu.so");
    let (plugin, program) = (plugin.display(), command[0]);
    let option = format!(
        "{plugin},folder={},plugin={plugin},program={program},group={group}",
        folder.path().display()
    );
    // The same addresses in every run, as far as QEMU allows it.
    let output = Command::new("setarch")
        .args(["-R", "qemu-x86_64", "-plugin", &option])
        .args(command)
        .env("OMP_NUM_THREADS", threads.to_string())
        .env("OMP_WAIT_POLICY", "passive")
        .envs([("PERL_HASH_SEED", "0"), ("PERL_PERTURB_KEYS", "0")])
        .output()
        .expect("qemu-x86_64 runs");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {stderr}");
    let options = Options {
        command: vec![],
        page_size: 4096,
        slices: 1000,
    };
    assemble(folder.path(), &options).unwrap()
}

fn programs() -> Vec<Vec<String>> {
    let ours = [
        ("ring", vec!["512", "5"]),
        ("stencil2d", vec!["64", "3"]),
        ("transpose", vec!["64", "3"]),
        ("ep", vec!["2000"]),
        ("hot_array", vec![]),
    ];
    let ours = chosen(ours, &[1, 2, 4])
        .into_iter()
        .map(|(name, arguments)| {
            let mut command = vec![workload(name).to_str().unwrap().to_owned()];
            command.extend(arguments.into_iter().map(str::to_owned));
            command
        });
    let theirs = [
        vec!["/bin/ls", "-l", "/usr/include"],
        vec!["/usr/bin/sort", "-n", "/etc/services"],
        vec!["/usr/bin/sha256sum", "/bin/ls"],
        vec!["/usr/bin/gzip", "-kc", "/etc/services"],
        vec![
            "/usr/bin/perl",
            "-e",
            "print join ' ', map {sqrt $_ / 3} 1..300",
        ],
    ];
    let theirs = chosen(theirs, &[1, 4])
        .into_iter()
        .filter(|command| PathBuf::from(command[0]).is_file())
        .map(|command| command.into_iter().map(str::to_owned).collect());
    ours.chain(theirs).collect()
}

#[test]
fn what_blocks_foretell_is_what_qemu_reports() {
    for command in programs() {
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        let profile = recorded("check", 2, &command);
        let notes = &profile.meta().notes;
        let (right, rest) = notes
            .iter()
            .find_map(|note| note.split_once(" accesses as predicted, "))
            .unwrap_or_else(|| panic!("{command:?}: {notes:?}"));
        let right: u64 = right.parse().unwrap();
        assert_eq!(rest, "0 not", "{command:?}: {right} right");
        let all: u64 = profile.threads().iter().map(|thread| thread.accesses).sum();
        assert!(right > all / 50, "{command:?}: {right} of {all}");
    }
}

#[test]
fn a_thread_alone_counts_the_same_to_the_last_access() {
    for command in programs() {
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        let counts = |group| {
            let profile = recorded(group, 1, &command);
            // By object: newer versions of QEMU do not have the same addresses in every run.
            let mut pages: Vec<_> = profile
                .pages()
                .pages()
                .iter()
                .map(|page| {
                    let object = page.object.map(|object| &profile.objects()[object.index()]);
                    let name = object.map(|object| (object.name.clone(), object.size));
                    let accesses = profile.pages().accesses(page).to_vec();
                    (name, page.object_page, format!("{accesses:?}"))
                })
                .collect();
            pages.sort();
            let threads: Vec<_> = profile
                .threads()
                .iter()
                .map(|t| (t.path.clone(), t.accesses, t.read_bytes, t.write_bytes))
                .collect();
            let bases: Vec<_> = profile.objects().iter().map(|object| object.base).collect();
            (threads, pages, bases)
        };
        let (off, on) = (counts("off"), counts("on"));
        assert_eq!(off.0, on.0, "{command:?}");
        // Newer versions reuse unmapped addresses, which differ from run to run: a mapping then shares pages with
        // another one.
        if off.2 != on.2 && !command[0].contains("workloads") {
            continue;
        }
        assert_eq!(off.1.len(), on.1.len(), "{command:?}");
        for (one, other) in off.1.iter().zip(&on.1) {
            assert_eq!(one, other, "{command:?}");
        }
    }
}

#[test]
fn threads_communicate_the_same() {
    for (name, arguments) in [("ring", ["2048", "40"]), ("transpose", ["256", "6"])] {
        let program = workload(name);
        let mut command = vec![program.to_str().unwrap()];
        command.extend(arguments);
        let events = |group| {
            let profile = recorded(group, 4, &command);
            let amount = numaloc_model::profile::Amount::Events;
            profile.matrix(Layer::WriteRead, amount).unwrap().to_dense()
        };
        let (off, on) = (events("off"), events("on"));
        let total: f64 = off.iter().sum();
        for (one, other) in off.iter().zip(&on) {
            let large = one.max(*other) > total / 100.0;
            let apart = (one - other).abs() / one.max(*other).max(1.0);
            assert!(!large || apart < 0.02, "{name}: {one} and {other}");
        }
    }
}
