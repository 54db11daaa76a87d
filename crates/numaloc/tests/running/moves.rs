//! Later moves: `plan --dynamic` makes them from the phases of a recording, `run` carries them out at the marks of a
//! native run, and the program notices nothing.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{numaloc, ok, record, root, workload};
use numaloc_model::plan::{PhasePlan, Plan, ThreadPlan, Trigger};
use numaloc_model::{LogicalPu, MarkKind, MarkPlace, OsPu};

/// Prints, for each of 100 barriers, the CPU of the second thread after it; then for five steps that of the first
/// thread after a user mark and after a region.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <numaloc.h>
#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static int after[100], marked[5], done[5];
static void barriers(void)
{
#pragma omp parallel num_threads(2)
    for (int i = 0; i < 100; i++) {
#pragma omp barrier
        if (omp_get_thread_num() == 1)
            after[i] = sched_getcpu();
    }
}
static void region(void)
{
#pragma omp parallel num_threads(2)
    {
        volatile int x = 0;
        (void)x;
    }
}
static void print(const char *name, const int *cpus, int count)
{
    printf("%s", name);
    for (int i = 0; i < count; i++)
        printf(" %d", cpus[i]);
    printf("\n");
}
int main(void)
{
    /* A child has its own passes: none of them moves anything, or stops it. */
    int status = 1;
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 5; i++)
            numaloc_mark("step");
        _exit(0);
    }
    if (waitpid(child, &status, 0) != child || status)
        return 3;
    barriers();
    for (int i = 0; i < 5; i++) {
        numaloc_mark("step");
        marked[i] = sched_getcpu();
        region();
        done[i] = sched_getcpu();
    }
    print("after", after, 100);
    print("marked", marked, 5);
    print("done", done, 5);
    printf("preloaded %s\n", getenv("LD_PRELOAD") ? getenv("LD_PRELOAD") : "nothing");
    fflush(stdout);
    return system("echo child ${LD_PRELOAD-nothing}");
}
"#;

fn build(folder: &Path, options: &[&str]) -> PathBuf {
    let (source, program) = (folder.join("steps.c"), folder.join("steps"));
    std::fs::write(&source, PROGRAM).unwrap();
    let mut command = Command::new("gcc");
    command.arg("-I").arg(root().join("shims/include"));
    command
        .args(["-O1", "-fopenmp", "-o"])
        .arg(&program)
        .arg(&source);
    ok(command.args(options));
    program
}

fn at(path: &str, pu: u32) -> ThreadPlan {
    ThreadPlan {
        path: path.to_owned(),
        pu: LogicalPu(pu),
        os_pu: OsPu(pu),
    }
}

fn moved(kind: MarkKind, name: &str, occurrence: u64, thread: ThreadPlan) -> PhasePlan {
    PhasePlan {
        at: 0.5,
        trigger: Some(Trigger {
            place: MarkPlace {
                kind,
                name: name.to_owned(),
            },
            occurrence,
            every: None,
        }),
        predicted: None,
        threads: vec![thread],
        pages: Vec::new(),
    }
}

/// The name that the compiler gave the function of a region.
fn function(program: &Path, of: &str) -> String {
    let symbols = ok(Command::new("nm").arg(program));
    let mut names = symbols
        .lines()
        .filter_map(|line| line.split_whitespace().last());
    let prefix = format!("{of}._omp_fn.");
    names
        .find(|name| name.starts_with(&prefix))
        .unwrap()
        .to_owned()
}

/// Two CPUs that this process may use; `None` if it has only one.
fn two_cpus() -> Option<(u32, u32)> {
    let allowed = numaloc_sys::affinity::get(0).unwrap();
    let [a, b, ..] = allowed[..] else {
        eprintln!("one CPU: nothing can move");
        return None;
    };
    Some((a, b))
}

/// A plan whose second thread moves at the 100th pass of the barrier, and whose first one moves at the second user mark
/// and back at the fourth region.
fn plan(folder: &Path, program: &Path, (a, b): (u32, u32)) -> PathBuf {
    let plan = Plan {
        threads: vec![at("0", a), at("0.1", a)],
        schedule: vec![
            moved(MarkKind::Barrier, "GOMP_barrier", 100, at("0.1", b)),
            moved(MarkKind::User, "step", 2, at("0", b)),
            moved(
                MarkKind::Region,
                &function(program, "region"),
                4,
                at("0", a),
            ),
        ],
        ..Plan::by_hand("another machine", "none")
    };
    let path = folder.join("plan.json");
    numaloc_formats::plan::write(&plan, &path, true).unwrap();
    path
}

/// Runs a program under a plan: its output, and the report.
fn run(plan: &Path, program: &Path, preload: Option<&str>) -> (String, String) {
    let mut command = numaloc(&["run", "--force-machine", "--plan"]);
    command.arg(plan).arg("--").arg(program);
    command.env_remove("LD_PRELOAD");
    preload.map(|preload| command.env("LD_PRELOAD", preload));
    let output = command.output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");
    (String::from_utf8(output.stdout).unwrap(), stderr)
}

#[test]
fn threads_move_exactly_at_their_marks_and_the_program_sees_its_own_environment() {
    let Some((a, b)) = two_cpus() else { return };
    let folder = tempfile::tempdir().unwrap();
    let program = build(folder.path(), &[]);
    let plan = plan(folder.path(), &program, (a, b));
    for preload in [None, Some("libm.so.6")] {
        let (output, report) = run(&plan, &program, preload);
        let line = |name: &str| -> Vec<String> {
            let line = output.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().skip(1).map(str::to_owned).collect()
        };
        // Two threads arrive at each barrier: the 100th pass is the second arrival at the 50th.
        let expected: Vec<String> = (0..100)
            .map(|i| if i < 49 { a } else { b }.to_string())
            .collect();
        assert_eq!(line("after"), expected, "{report}");
        assert_eq!(
            line("marked"),
            [a, b, b, b, a].map(|cpu| cpu.to_string()),
            "{report}"
        );
        assert_eq!(
            line("done"),
            [a, b, b, a, a].map(|cpu| cpu.to_string()),
            "{report}"
        );
        assert!(
            report.contains("later moves: 3 of 3 made (3 times); 3 threads"),
            "{report}"
        );
        assert!(report.contains("threads: 2 of 2 where planned"), "{report}");
        let seen = preload.unwrap_or("nothing").to_owned();
        assert_eq!(
            (line("preloaded"), line("child")),
            (vec![seen.clone()], vec![seen])
        );
    }
}

#[test]
fn a_static_program_moves_exactly_at_its_marks_too() {
    let Some((a, b)) = two_cpus() else { return };
    let folder = tempfile::tempdir().unwrap();
    for options in [&["-static"][..], &["-static-pie", "-fPIE"]] {
        let program = build(folder.path(), options);
        let plan = plan(folder.path(), &program, (a, b));
        let (output, report) = run(&plan, &program, None);
        let cpus = |name: &str, cpus: &[u32]| {
            let cpus: Vec<String> = cpus.iter().map(u32::to_string).collect();
            let line = format!("{name} {}\n", cpus.join(" "));
            assert!(output.contains(&line), "{line}{output}{report}");
        };
        let after: Vec<u32> = (0..100).map(|i| if i < 49 { a } else { b }).collect();
        cpus("after", &after);
        cpus("marked", &[a, b, b, b, a]);
        cpus("done", &[a, b, b, a, a]);
        assert!(
            output.contains("preloaded nothing\nchild nothing\n"),
            "{output}"
        );
        for line in [
            "not loaded: the program is not loaded by a dynamic linker",
            "patched functions of the program",
            "later moves: 3 of 3 made (3 times)",
        ] {
            assert!(report.contains(line), "{line}: {report}");
        }
    }
}

#[test]
fn a_stripped_static_program_has_its_user_marks_by_the_probe_and_says_which_are_missing() {
    let Some((a, b)) = two_cpus() else { return };
    let folder = tempfile::tempdir().unwrap();
    let program = build(folder.path(), &["-static"]);
    let path = plan(folder.path(), &program, (a, b));
    ok(Command::new("strip").arg(&program));
    let (output, report) = run(&path, &program, None);
    assert!(output.contains(&format!("marked {a} {b} {b} {b} {b}\n")));
    assert!(report.contains("in 1 patched functions"), "{report}");
    assert!(report.contains("later moves: 1 of 3 made"), "{report}");
    let mut plan = numaloc_formats::plan::read(&path).unwrap();
    plan.schedule = vec![moved(MarkKind::Barrier, "GOMP_barrier", 2, at("0", b))];
    numaloc_formats::plan::write(&plan, &path, true).unwrap();
    let (_, report) = run(&path, &program, None);
    let missing = "no later moves: it has no symbols or probes of these marks";
    assert!(report.contains(missing), "{report}");
}

#[test]
fn a_run_time_library_that_was_loaded_for_another_one_alone_is_found() {
    let Some((a, b)) = two_cpus() else { return };
    let folder = tempfile::tempdir().unwrap();
    let library = "int sum(void) {\n int n = 0;\n#pragma omp parallel num_threads(2) reduction(+:n)\n n++;\n return n; }\n";
    let program = r#"
#include <dlfcn.h>
int main(int argc, char **argv)
{
    void *library = dlopen(argv[argc - 1], RTLD_NOW | RTLD_LOCAL);
    int (*sum)(void) = (int (*)(void))dlsym(library, "sum");
    return sum() == 2 && sum() == 2 ? 0 : 1;
}
"#;
    let (part, whole) = (folder.path().join("part.so"), folder.path().join("whole"));
    for (text, output, options) in [
        (library, &part, &["-shared", "-fPIC", "-fopenmp"][..]),
        (program, &whole, &[]),
    ] {
        let source = output.with_extension("c");
        std::fs::write(&source, text).unwrap();
        ok(Command::new("gcc")
            .args(options)
            .arg("-o")
            .arg(output)
            .arg(&source));
    }
    let plan = Plan {
        threads: vec![at("0", a)],
        schedule: vec![moved(MarkKind::Region, "GOMP_parallel", 2, at("0", b))],
        ..Plan::by_hand("another machine", "none")
    };
    let path = folder.path().join("plan.json");
    numaloc_formats::plan::write(&plan, &path, true).unwrap();
    let mut command = numaloc(&["run", "--force-machine", "--plan"]);
    let output = command
        .arg(&path)
        .arg("--")
        .arg(&whole)
        .arg(&part)
        .output()
        .unwrap();
    let report = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{report}");
    assert!(report.contains("later moves: 1 of 1 made"), "{report}");
}

#[test]
fn a_mark_that_the_program_does_not_have_is_reported() {
    let Some((a, b)) = two_cpus() else { return };
    let folder = tempfile::tempdir().unwrap();
    let program = build(folder.path(), &[]);
    let path = plan(folder.path(), &program, (a, b));
    let mut plan = numaloc_formats::plan::read(&path).unwrap();
    plan.schedule = vec![
        moved(MarkKind::Region, "nowhere._omp_fn.0", 1, at("0", b)),
        moved(MarkKind::Barrier, "GOMP_barrier", 1_000_000, at("0", b)),
    ];
    numaloc_formats::plan::write(&plan, &path, true).unwrap();
    let (_, report) = run(&path, &program, None);
    assert!(report.contains("nowhere._omp_fn.0"), "{report}");
    assert!(report.contains("later moves: 0 of 2 made"), "{report}");
}

#[test]
fn a_recording_of_two_phases_becomes_a_plan_that_moves_at_the_programs_own_mark() {
    let folder = tempfile::tempdir().unwrap();
    let profile = folder.path().join("two_phase.numaloc");
    let program = workload("two_phase");
    record(&profile, 4, &[program.to_str().unwrap(), "512", "200"]);
    let path = folder.path().join("plan.json");
    let mut command = numaloc(&["plan", "--dynamic", "--machine", "numa:2 core:2 pu:1"]);
    command.args([
        "--thread-interval",
        "0",
        "--thread-move",
        "0",
        "--page-move",
        "0",
        "--a-min",
        "0",
    ]);
    let text = ok(command.arg(&profile).arg("-o").arg(&path));
    let plan = numaloc_formats::plan::read(&path).unwrap();
    // The mapping after the last move of threads.
    let mut node: Vec<(String, u32)> = plan
        .threads
        .iter()
        .map(|thread| (thread.path.clone(), thread.pu.0 / 2))
        .collect();
    let of = |node: &[(String, u32)], path: &str| {
        node.iter().find(|(known, _)| known == path).unwrap().1
    };
    let pairs = |node: &[(String, u32)], partners: [(&str, &str); 2]| {
        partners
            .iter()
            .all(|(one, other)| of(node, one) == of(node, other))
    };
    assert!(pairs(&node, [("0", "0.1"), ("0.2", "0.3")]), "{text}");
    for phase in &plan.schedule {
        for thread in &phase.threads {
            let known = node
                .iter_mut()
                .find(|(path, _)| *path == thread.path)
                .unwrap();
            known.1 = thread.pu.0 / 2;
        }
    }
    assert!(pairs(&node, [("0", "0.2"), ("0.1", "0.3")]), "{text}");
    // Barriers are as near, but the program says itself when its second half begins.
    let moving = plan
        .schedule
        .iter()
        .find(|phase| !phase.threads.is_empty())
        .unwrap();
    let trigger = moving.trigger.as_ref().unwrap();
    assert_eq!(
        (trigger.place.kind, &*trigger.place.name),
        (MarkKind::User, "distant partners")
    );
    assert_eq!((trigger.occurrence, trigger.every), (1, None), "{text}");
}
