//! `numaloc run` where the plan cannot be carried out in full: it says so, and the program runs.

use crate::support;
use crate::support::{numaloc, root};
use numaloc_model::plan::{ObjectKey, PagePlan, Plan, ThreadPlan};
use numaloc_model::profile::ObjectKind;
use numaloc_model::{LogicalNode, LogicalPu, OsPu};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A plan for this machine: these threads on its last PU, and the heap on its first node.
fn plan(folder: &Path, threads: &[&str]) -> PathBuf {
    let machine = numaloc_topology::from_this_machine().unwrap();
    let last = machine.pus().len() - 1;
    let on = |pu: usize| (LogicalPu::from_index(pu), machine.pus()[pu].os);
    let plan = Plan {
        threads: threads
            .iter()
            .map(|path| ThreadPlan {
                path: (*path).to_owned(),
                pu: on(last).0,
                os_pu: on(last).1,
            })
            .collect(),
        objects: vec![ObjectKey {
            kind: ObjectKind::Heap,
            name: "[heap]".to_owned(),
            creator: Some("0".to_owned()),
            size: 0,
            order: 0,
        }],
        pages: vec![PagePlan {
            object: 0,
            first_page: 0,
            pages: 1000,
            node: LogicalNode(0),
            os_node: machine.nodes()[0].os,
        }],
        ..Plan::by_hand(machine.name(), &machine.fingerprint())
    };
    let file = folder.join("plan.json");
    numaloc_formats::plan::write(&plan, &file, true).unwrap();
    file
}

fn compile(folder: &Path, source: &str) -> String {
    let source = root().join(source);
    let program = folder.join(source.file_stem().unwrap());
    let status = Command::new("cc")
        .args(["-O1", "-o"])
        .args([&program, &source])
        .status()
        .expect("a C compiler runs");
    assert!(status.success());
    program.to_str().unwrap().to_owned()
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// `BEFORE numaloc run --plan PLAN --pages always -- COMMAND`; what it said.
fn run_under(before: &[&str], plan: &Path, command: &[&str], status: i32) -> String {
    let own = env!("CARGO_BIN_EXE_numaloc");
    let output = Command::new(before[0])
        .args(&before[1..])
        .args([own, "run", "--pages", "always", "--plan"])
        .arg(plan)
        .arg("--")
        .args(command)
        .output()
        .unwrap_or_else(|error| panic!("{before:?}: {error}"));
    let said = words(&output);
    assert_eq!(output.status.code(), Some(status), "{before:?}: {said}");
    said
}

#[test]
fn less_than_required_is_status_3() {
    let folder = tempfile::tempdir().unwrap();
    // One of two threads appears.
    let plan = plan(folder.path(), &["0", "0.7"]);
    let run = |percent: &str, command: &[&str]| {
        let output = numaloc(&["run", "--pages", "never", "--require", percent, "--plan"])
            .arg(&plan)
            .arg("--")
            .args(command)
            .output()
            .unwrap();
        (output.status.code().unwrap(), words(&output))
    };
    let (status, said) = run("99", &["true"]);
    assert_eq!(status, 3, "{said}");
    assert!(said.contains("only 50.0 % of the planned threads are in place, --require 99"));
    assert_eq!(run("50", &["true"]).0, 0);
    // The program's own failure is what its caller wants to know.
    assert_eq!(run("99", &["sh", "-c", "exit 5"]).0, 5);
}

#[test]
fn where_ptrace_is_forbidden_the_program_runs_on_the_plans_pus() {
    let folder = tempfile::tempdir().unwrap();
    let refuses = compile(folder.path(), "crates/numaloc/tests/run/refuses.c");
    let plan_file = plan(folder.path(), &["0"]);
    let said = run_under(
        &[&refuses, "ptrace"],
        &plan_file,
        &["sh", "-c", "exit 6"],
        6,
    );
    assert!(said.contains("seccomp filter is in force"), "{said}");
    assert!(said.contains("runs on the plan's PUs as a set"), "{said}");
    let machine = numaloc_topology::from_this_machine().unwrap();
    let OsPu(last) = machine.pus()[machine.pus().len() - 1].os;
    let check = format!("grep -qP 'Cpus_allowed_list:\\t{last}$' /proc/self/status");
    run_under(&[&refuses, "ptrace"], &plan_file, &["sh", "-c", &check], 0);
}

#[test]
fn where_ptrace_kills_the_program_runs_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let refuses = compile(folder.path(), "crates/numaloc/tests/run/refuses.c");
    let plan_file = plan(folder.path(), &["0"]);
    let said = run_under(
        &[&refuses, "ptrace-dead"],
        &plan_file,
        &["sh", "-c", "exit 6"],
        6,
    );
    assert!(said.contains("kills processes that call ptrace"), "{said}");
}

#[test]
fn debuggers_run_under_a_plan() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(folder.path(), &["0"]);
    for tracer in [
        &["strace", "-f", "-o", "/dev/null", "-e", "trace=none"][..],
        &[
            "gdb",
            "-q",
            "-batch",
            "-ex",
            "run",
            "-ex",
            "quit $_exitcode",
            "--args",
        ],
    ] {
        if Command::new(tracer[0]).arg("--version").output().is_err() {
            support::skip(&format!("{} is not installed", tracer[0]));
            continue;
        }
        let script = ["sh", "-c", "/bin/true; exit 4"];
        let command: Vec<&str> = tracer.iter().chain(&script).copied().collect();
        let said = run_under(&["env"], &plan, &command, 4);
        assert!(said.contains("traced by the program itself"), "{said}");
    }
}

#[test]
fn where_mbind_is_forbidden_it_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let refuses = compile(folder.path(), "crates/numaloc/tests/run/refuses.c");
    let cost = compile(folder.path(), "crates/apply/benches/programs/cost.c");
    let plan = plan(folder.path(), &["0"]);
    let said = run_under(
        &[&refuses, "memory"],
        &plan,
        &[&cost, "malloc-keep", "20000"],
        0,
    );
    assert!(said.contains("threads: 1 of 1 where planned"), "{said}");
    assert!(said.contains("refused (EPERM)"), "{said}");
    assert!(said.contains("seccomp"), "{said}");
}

#[test]
fn under_another_tracer_the_program_runs_untouched() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(folder.path(), &["0"]);
    if Command::new("strace").arg("-V").output().is_err() {
        support::skip("strace is not installed");
        return;
    }
    let strace = ["strace", "-f", "-o", "/dev/null", "-e", "trace=none"];
    let said = run_under(&strace, &plan, &["sh", "-c", "exit 4"], 4);
    assert!(said.contains("already traces it"), "{said}");
}

#[test]
fn a_signal_sent_to_run_reaches_the_program_traced_or_not() {
    use rustix::process::{Pid, Signal, kill_process};
    use std::io::{BufRead, BufReader, Read};
    let folder = tempfile::tempdir().unwrap();
    let refuses = compile(folder.path(), "crates/numaloc/tests/run/refuses.c");
    let plan = plan(folder.path(), &["0"]);
    // At most ten minutes: a signal that is lost must not leave the program behind.
    let program =
        "trap 'echo caught; exit 9' USR1; echo ready; for i in $(seq 12000); do sleep 0.05; done";
    for before in [&["env"][..], &[&refuses, "ptrace"]] {
        let mut run = Command::new(before[0])
            .args(&before[1..])
            .args([env!("CARGO_BIN_EXE_numaloc"), "--quiet", "run", "--plan"])
            .arg(&plan)
            .args(["--", "sh", "-c", program])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(run.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "{before:?}");
        kill_process(Pid::from_raw(run.id() as i32).unwrap(), Signal::USR1).unwrap();
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "caught\n", "{before:?}");
        assert_eq!(run.wait().unwrap().code(), Some(9), "{before:?}");
    }
}

#[test]
fn a_set_user_id_program_keeps_its_rights() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    if !status.lines().any(|l| l.starts_with("Uid:\t0\t0")) {
        support::skip("only root can make a set-user-id program");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let open = |path: &Path, mode: u32| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(path, mode).unwrap();
    };
    open(folder.path(), 0o755);
    let plan = plan(folder.path(), &["0"]);
    open(&plan, 0o644);
    // Copies, since `nobody` may not reach the originals. Made by a process of its own: what another test's thread
    // starts meanwhile would hold a file of this process open, and the kernel executes no file that is open for
    // writing.
    let own = folder.path().join("numaloc");
    let id = folder.path().join("id");
    for (from, to) in [(env!("CARGO_BIN_EXE_numaloc"), &own), ("/usr/bin/id", &id)] {
        support::ok(Command::new("cp").arg(from).arg(to));
    }
    open(&id, 0o4755);
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
        .arg(&own)
        .args(["run", "--plan"])
        .arg(&plan)
        .arg("--")
        .args([id.to_str().unwrap(), "-u"])
        .output()
        .expect("setpriv runs");
    let said = words(&output);
    assert_eq!(output.stdout, b"0\n", "{said}");
    assert!(said.contains("set-user-id"), "{said}");
}

/// A cpuset of one PU, gone when dropped.
struct Cpuset(PathBuf);

impl Cpuset {
    fn new(pu: u32) -> Option<Self> {
        let name = format!("numaloc-test-{}", std::process::id());
        // Version 1, then version 2.
        for root in ["/sys/fs/cgroup/cpuset", "/sys/fs/cgroup"] {
            let own = Self(Path::new(root).join(&name));
            let set = std::fs::create_dir(&own.0)
                .and_then(|()| std::fs::write(own.0.join("cpuset.cpus"), pu.to_string()))
                .and_then(|()| std::fs::write(own.0.join("cpuset.mems"), "0"));
            if set.is_ok() {
                return Some(own);
            }
        }
        None
    }
}

impl Drop for Cpuset {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn a_plan_larger_than_the_cpuset_is_refused_or_forced_in_part() {
    let machine = numaloc_topology::from_this_machine().unwrap();
    let first = machine.pus()[0].os.0;
    if machine.pus().len() < 2 {
        support::skip("needs two PUs");
        return;
    }
    let Some(cpuset) = Cpuset::new(first) else {
        support::skip("no cpuset can be made here");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(folder.path(), &["0"]);
    let enter = "echo $$ > \"$0\"/cgroup.procs && exec \"$@\"";
    let inside = ["sh", "-c", enter, cpuset.0.to_str().unwrap()];
    let said = run_under(&inside, &plan, &["true"], 125);
    assert!(said.starts_with("error: the plan was made for"), "{said}");
    let output = Command::new(inside[0])
        .args(&inside[1..])
        .args([
            env!("CARGO_BIN_EXE_numaloc"),
            "run",
            "--force-machine",
            "--plan",
        ])
        .arg(&plan)
        .args(["--", "true"])
        .output()
        .unwrap();
    let said = words(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("refused (EINVAL)"), "{said}");
    assert!(said.contains("outside the cpuset"), "{said}");
}

#[test]
fn an_inherited_affinity_mask_is_part_of_the_machine() {
    let allowed = numaloc_sys::affinity::get(0).unwrap();
    let (Some(first), true) = (allowed.first(), allowed.len() > 1) else {
        support::skip("there is one PU");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let pu = first.to_string();
    let inside = ["taskset", "-c", &pu];
    let output = Command::new(inside[0])
        .args(&inside[1..])
        .args([env!("CARGO_BIN_EXE_numaloc"), "topology", "--json"])
        .output()
        .unwrap();
    let machine: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let pus: Vec<u64> = machine["pus"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pu| pu["os_pu"].as_u64().unwrap())
        .collect();
    assert_eq!(pus, [u64::from(*first)]);
    let plan = plan(folder.path(), &["0", "0/1"]);
    let said = run_under(&inside, &plan, &["true"], 125);
    assert!(said.starts_with("error: the plan was made for"), "{said}");
    // Forced, no thread leaves the mask: the second one is planned on another PU.
    let output = Command::new(inside[0])
        .args(&inside[1..])
        .args([
            env!("CARGO_BIN_EXE_numaloc"),
            "run",
            "--force-machine",
            "--plan",
        ])
        .arg(&plan)
        .args([
            "--",
            "sh",
            "-c",
            "taskset -cp $$; (taskset -cp $BASHPID); true",
        ])
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    for line in shown.lines() {
        assert!(line.ends_with(&format!(": {pu}")), "{shown}");
    }
}

#[test]
fn another_program_runs_as_if_there_were_no_plan_unless_forced() {
    let folder = tempfile::tempdir().unwrap();
    let file = plan(folder.path(), &["0"]);
    let mut made = numaloc_formats::plan::read(&file).unwrap();
    made.provenance.command = vec!["./app".to_owned(), "7".to_owned()];
    numaloc_formats::plan::write(&made, &file, true).unwrap();
    let said = run_under(&["env"], &file, &["sh", "-c", "exit 7"], 7);
    let line = "the plan was made for app, the program is sh (--force-program applies it); it runs as if there were no plan";
    assert!(said.contains(line), "{said}");
    let required = numaloc(&["run", "--require", "50", "--plan"])
        .arg(&file)
        .args(["--", "true"])
        .output()
        .unwrap();
    assert_eq!(required.status.code(), Some(3), "{}", words(&required));
    let output = numaloc(&["run", "--force-program", "--plan"])
        .arg(&file)
        .args(["--", "true"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", words(&output));
    std::os::unix::fs::symlink("/bin/true", folder.path().join("app")).unwrap();
    let app = folder.path().join("app");
    run_under(&["env"], &file, &[app.to_str().unwrap(), "8"], 0);
}
