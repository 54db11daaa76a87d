//! An installation is complete in itself: installed, moved, and used without the build tree.

use crate::support;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{fails, ok, root, workload};

/// The folder with the debug build that is tested.
fn build() -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_numaloc"));
    program.parent().expect("a folder").to_owned()
}

/// An installation of the debug build in `folder`, moved after it was installed.
fn installed(folder: &Path) -> PathBuf {
    let (first, moved) = (folder.join("first"), folder.join("moved"));
    ok(Command::new(root().join("make/install"))
        .arg(build())
        .arg(&first));
    fs::rename(&first, &moved).expect("the same file system");
    moved
}

/// The installed program with arguments, in `folder`, without variables that name files of ours.
fn numaloc(prefix: &Path, folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(prefix.join("bin/numaloc"));
    command.args(args).current_dir(folder);
    for name in [
        "NUMALOC_PLUGIN_DIR",
        "NUMALOC_LAB_PLUGIN",
        "NUMALOC_OCR_HOME",
    ] {
        command.env_remove(name);
    }
    command
}

/// All files below `folder`.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found
}

const OCR: &str = "\
#include <ocr.h>
ocrGuid_t mainEdt(u32 paramc, u64 *paramv, u32 depc, ocrEdtDep_t depv[]) {
    PRINTF(\"done\\n\");
    ocrShutdown();
    return NULL_GUID;
}
";

const SUM: &str = "\
#include <stdio.h>
int main(void) { long sum = 0; for (int i = 0; i < 1000; i++) sum += i; printf(\"%ld\\n\", sum); }
";

#[test]
fn a_moved_installation_records_plans_runs_and_compiles() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().canonicalize().unwrap();
    let prefix = installed(&here);
    let run = |args: &[&str]| ok(&mut numaloc(&prefix, &here, args));

    let pairs = workload("pairs");
    let program = pairs.to_str().unwrap();
    run(&["record", "-o", "p.numaloc", "--", program]);
    assert!(run(&["show", "p.numaloc"]).contains("\nSure "));
    run(&[
        "plan",
        "p.numaloc",
        "--threads",
        "numaloc",
        "-o",
        "plan.json",
    ]);
    run(&["run", "--plan", "plan.json", "--", program]);
    run(&["report", "p.numaloc", "plan.json", "-o", "report.html"]);

    fs::write(here.join("task.c"), OCR).unwrap();
    run(&["tasks", "cc", "task.c", "-o", "task"]);
    assert_eq!(ok(&mut Command::new(here.join("task"))), "done\n");

    fs::write(here.join("sum.c"), SUM).unwrap();
    run(&["cc", "--", "gcc", "-O1", "sum.c", "-o", "sum"]);
    let recorded = run(&["record", "--frontend", "instrument", "--", "./sum"]);
    assert_eq!(recorded, "499500\n");

    let native = prefix.join("lib/numaloc/numaloc-native");
    assert_eq!(
        ok(Command::new(native).arg("--").arg(here.join("sum"))),
        "499500\n"
    );
}

#[test]
fn an_installation_has_pages_completions_and_licences_and_names_no_build_tree() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = installed(folder.path());
    for file in [
        "include/numaloc/ocr.h",
        "include/numaloc/extensions/ocr-affinity.h",
        "share/bash-completion/completions/numaloc",
        "share/doc/numaloc/LICENSE-APACHE",
        "share/doc/numaloc/LICENSE-MIT",
        "share/doc/numaloc/NOTICE",
        "share/doc/numaloc/docs/commands/record.md",
        "share/fish/vendor_completions.d/numaloc.fish",
        "share/man/man1/numaloc-record.1.gz",
        "share/man/man1/numaloc-tasks-run.1.gz",
        "share/man/man1/numaloc.1.gz",
        "share/numaloc/machines/numa4x4.toml",
        "share/numaloc/shims/gcc/loops.cc",
        "share/zsh/site-functions/_numaloc",
    ] {
        assert!(prefix.join(file).is_file(), "{file}");
    }
    let script = prefix.join("share/bash-completion/completions/numaloc");
    ok(Command::new("bash").arg("-n").arg(&script));
    let tree = root().canonicalize().unwrap();
    let tree = tree.to_str().unwrap().as_bytes().to_owned();
    for file in files(&prefix) {
        let bytes = fs::read(&file).unwrap();
        let named = bytes.windows(tree.len()).any(|window| window == tree);
        assert!(!named, "{} names the build tree", file.display());
    }
    ok(Command::new(root().join("make/install"))
        .arg("--remove")
        .arg(&prefix));
    assert_eq!(files(&prefix), [] as [PathBuf; 0]);
}

#[test]
fn a_program_without_its_installation_says_how_to_install_it() {
    let folder = tempfile::tempdir().unwrap();
    let bin = folder.path().join("bin");
    fs::create_dir(&bin).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_numaloc"), bin.join("numaloc")).unwrap();
    let message = fails(
        &mut numaloc(
            folder.path(),
            folder.path(),
            &["record", "--quiet", "--", "true"],
        ),
        125,
    );
    assert!(
        message.contains("libnumaloc_qemu.so is not in"),
        "{message}"
    );
    assert!(message.contains("make install"), "{message}");
}

#[test]
fn the_version_lists_frontends_and_its_short_form_does_not() {
    let long = ok(&mut support::numaloc(&["--version"]));
    let short = ok(&mut support::numaloc(&["-V"]));
    assert!(
        short.starts_with("numaloc ") && short.lines().count() == 1,
        "{short}"
    );
    assert!(long.starts_with(&short), "{long}");
    assert!(long.contains("\nfrontends: "), "{long}");
}

#[test]
fn doctor_reports_a_missing_emulator_and_where_it_records_that_it_works() {
    let folder = tempfile::tempdir().unwrap();
    let parts = |command: &mut Command, status: i32| {
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{command:?}");
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        json["parts"].as_array().unwrap().clone()
    };
    let state = |parts: &[serde_json::Value], name: &str| {
        let part = parts.iter().find(|part| part["part"] == name);
        part.unwrap()["state"].as_str().unwrap().to_owned()
    };
    let here = parts(&mut support::numaloc(&["doctor", "--json"]), 0);
    assert_eq!(state(&here, "qemu frontend"), "ok");
    let mut command = support::numaloc(&["doctor", "--json"]);
    command
        .env("PATH", folder.path())
        .env_remove("NUMALOC_QEMU");
    let without = parts(&mut command, 0);
    assert_eq!(state(&without, "qemu frontend"), "missing");
    assert_eq!(state(&without, "MPI"), "missing");
    for part in &without {
        assert_eq!(part["fix"].is_null(), part["state"] == "ok", "{part}");
    }
    command.env("NUMALOC_PLUGIN_DIR", folder.path());
    let neither = parts(&mut command, 1);
    assert_eq!(state(&neither, "native frontend"), "missing");
    let mut command = support::numaloc(&["doctor"]);
    command
        .env("PATH", folder.path())
        .env_remove("NUMALOC_QEMU");
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("missing  qemu frontend: qemu-x86_64 is not on PATH\n"),
        "{text}"
    );
    assert!(text.contains("\n         fix: "), "{text}");
}

#[test]
fn doctor_reports_a_restricted_set_of_cpus() {
    if std::thread::available_parallelism().unwrap().get() < 2 {
        return support::skip("one CPU cannot be restricted");
    }
    let output = Command::new("taskset")
        .args(["-c", "0", env!("CARGO_BIN_EXE_numaloc"), "doctor"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("limited  CPUs: 1 of "), "{text}");
}
