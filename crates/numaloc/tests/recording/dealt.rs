//! `--deal node`: recordings whose threads have the same iterations in each run, and runs of plans made from them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::support::{chosen, fails, numaloc, ok};
use numaloc_model::conditions::Repeatability;
use numaloc_model::{PageNumber, Profile, ThreadIdx};

/// A loop with a dynamic schedule over an array; prints how its loops are dealt.
const PROGRAM: &str = "
#include <stdio.h>
#include <stdlib.h>
static double a[1 << 16];
int main(void)
{
    for (int round = 0; round < 4; round++) {
#pragma omp parallel for schedule(dynamic, 64)
        for (int i = 0; i < 1 << 16; i++)
            a[i] = a[i] / 2 + round;
    }
    const char *deal = getenv(\"NUMALOC_DEAL\");
    printf(\"%s %g\\n\", deal ? deal : \"no\", a[77]);
    return 0;
}
";

fn built(folder: &Path, compiler: &str, options: &[&str]) -> String {
    let (source, program) = (folder.join("program.c"), folder.join("program"));
    std::fs::write(&source, PROGRAM).unwrap();
    let mut command = Command::new(compiler);
    command
        .args(["-O1", "-fopenmp", "-no-pie"])
        .arg(&source)
        .arg("-o");
    ok(command.arg(&program).args(options));
    program.to_str().unwrap().to_owned()
}

fn recorded(folder: &Path, name: &str, program: &str, options: &[&str]) -> (String, Profile) {
    let output = folder.join(name);
    let mut command = numaloc(&["record", "--quiet", "--force"]);
    command.args(options).arg("-o").arg(&output).arg("--");
    let printed = ok(command.arg(program).env("OMP_NUM_THREADS", "4"));
    (printed, numaloc_formats::profile::read(&output).unwrap())
}

/// For each page, by number, the thread that has used it most.
fn users(profile: &Profile) -> BTreeMap<PageNumber, ThreadIdx> {
    let usage = profile.pages();
    let user = |page| {
        let accesses = usage.accesses(page).iter();
        accesses
            .max_by_key(|access| access.total())
            .map(|access| access.thread)
    };
    let pages = usage.pages().iter();
    pages
        .filter_map(|page| Some((page.number, user(page)?)))
        .collect()
}

#[test]
fn a_dealt_recording_holds_and_its_plan_deals() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for compiler in chosen(["gcc", "clang"], &[0]) {
        let program = built(folder, compiler, &[]);
        let (printed, plain) = recorded(folder, "plain", &program, &[]);
        assert_eq!(printed, "no 4.25\n");
        assert_eq!(
            plain.meta().conditions.repeatability(4),
            Repeatability::Dynamic
        );
        let shown = ok(numaloc(&["show"]).arg(folder.join("plain")));
        assert!(shown.contains("record --deal node"), "{shown}");

        let dealt = ["--deal", "node"];
        let (printed, first) = recorded(folder, "first", &program, &dealt);
        assert_eq!(printed, "record 4.25\n");
        let (_, second) = recorded(folder, "second", &program, &dealt);
        let conditions = &first.meta().conditions;
        assert!(conditions.is_dealt());
        assert_eq!(conditions.repeatability(4), Repeatability::Assumed);
        assert_eq!(conditions.sharing, []);
        // 128 pages of the array, 32 for each of 4 threads; those between two threads, and others, may differ.
        let (first, second) = (users(&first), users(&second));
        let equal = first
            .iter()
            .filter(|(page, user)| second.get(page) == Some(user));
        let equal = equal.count();
        assert!(equal >= 120, "{compiler}: {first:?} {second:?}");

        let plan = folder.join("plan.json");
        let mut command = numaloc(&["plan", "--quiet", "--force", "-o"]);
        ok(command.arg(&plan).arg(folder.join("first")));
        let run = |options: &[&str]| {
            let mut command = numaloc(&["run", "--plan"]);
            command.arg(&plan).args(options).args(["--", &program]);
            ok(command.env("OMP_NUM_THREADS", "4"))
        };
        assert_eq!(run(&[]), "node 4.25\n");
        assert_eq!(run(&["--deal", "none"]), "no 4.25\n");
        let alone = |by: &str| ok(&mut numaloc(&["run", "--deal", by, "--", &program]));
        assert_eq!(alone("node"), "node 4.25\n");
        assert_eq!(alone("none"), "no 4.25\n");
    }
}

#[test]
fn programs_that_cannot_be_dealt_are_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let program = built(folder, "gcc", &["-static"]);
    let profile = folder.join("profile");
    let mut command = numaloc(&["record", "--quiet", "--deal", "node", "-o"]);
    let said = fails(command.arg(&profile).args(["--", &program]), 125);
    assert!(said.contains("not loaded by a dynamic linker"), "{said}");
    assert!(!profile.exists());
    let said = fails(
        &mut numaloc(&["run", "--deal", "node", "--", &program]),
        125,
    );
    assert!(said.contains("not loaded by a dynamic linker"), "{said}");
    fails(
        &mut numaloc(&["run", "--deal", "node", "--", "no-such-program"]),
        127,
    );
    fails(
        &mut numaloc(&[
            "record",
            "--deal",
            "node",
            "--frontend",
            "perf",
            "--",
            "true",
        ]),
        2,
    );
}
