//! Online placement on this machine: the program is as if numaloc were not there, also when numaloc is killed. What
//! moves is tested where there are several nodes (`tests/lab.rs`).

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::{numaloc, ok, root};

/// A source that works on every machine that lets us sample at all.
const SEEN: [&str; 2] = ["--source", "page-faults"];

fn victim(folder: &Path) -> PathBuf {
    let program = folder.join("victim");
    let source = root().join("crates/numaloc/tests/online/victim.c");
    let mut command = Command::new("gcc");
    ok(command
        .args(["-O2", "-pthread", "-o"])
        .arg(&program)
        .arg(source));
    program
}

fn online(program: &[&str]) -> Output {
    let mut command = numaloc(&["run", "--online"]);
    command.args(SEEN).arg("--").args(program).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn faults_system_calls_children_and_huge_pages_of_the_program_are_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let program = victim(folder.path());
    let output = online(&[program.to_str().unwrap(), "1"]);
    assert_eq!(output.status.code(), Some(7), "{}", said(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "right\n");
}

#[test]
fn output_status_and_signals_are_the_programs() {
    let output = online(&["sh", "-c", "echo out; echo err >&2; exit 5"]);
    assert_eq!(
        (output.status.code(), &*output.stdout),
        (Some(5), &b"out\n"[..])
    );
    assert!(said(&output).contains("err\n"));
    let killed = online(&["sh", "-c", "kill -9 $$"]);
    assert_eq!(killed.status.code(), Some(137), "{}", said(&killed));
    for (program, status) in [("/no/such/program", 127), ("/etc/passwd", 126)] {
        let output = online(&[program]);
        assert_eq!(output.status.code(), Some(status), "{}", said(&output));
    }
    let mut command = numaloc(&["run", "--online"]);
    command.args(SEEN).args([
        "--",
        "sh",
        "-c",
        "trap 'echo stopped; exit 3' TERM; echo ready; while :; do sleep 0.05; done",
    ]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut ready = [0; 6];
    out.read_exact(&mut ready).unwrap();
    ok(Command::new("kill").arg(child.id().to_string()));
    assert_eq!(child.wait().unwrap().code(), Some(3));
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "stopped\n");
}

/// On a machine without any source, or without permission, the program runs all the same.
#[test]
fn without_a_source_the_program_runs_and_the_reason_is_given() {
    let output = numaloc(&[
        "run",
        "--online",
        "--source",
        "hint-faults",
        "--",
        "sh",
        "-c",
        "exit 4",
    ])
    .output()
    .unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", said(&output));
    let balancing = std::fs::read_to_string("/proc/sys/kernel/numa_balancing");
    if balancing.is_ok_and(|on| on.trim() == "0") {
        let words = said(&output);
        assert!(words.contains("NUMA balancing is off"), "{words}");
        assert!(words.contains("ran at the kernel's placement"), "{words}");
    }
}

#[test]
fn processes_that_cannot_be_followed_are_refused_in_one_line() {
    let attach = |pid: &str| {
        let mut command = numaloc(&["attach", pid]);
        command.args(SEEN).output().unwrap()
    };
    // Ended, and not reaped until the end of this test.
    let mut ended = Command::new("true").spawn().unwrap();
    let state = || std::fs::read_to_string(format!("/proc/{}/stat", ended.id())).unwrap();
    wait_until("ended", || state().contains(") Z "));
    for pid in [ended.id().to_string(), "2147483646".to_owned()] {
        let output = attach(&pid);
        let words = said(&output);
        assert_eq!(output.status.code(), Some(1), "{words}");
        assert!(words.contains("there is no such process"), "{words}");
    }
    ended.wait().unwrap();
    // Another user's: as root, a process of `nobody`.
    let mut other = Command::new("sleep");
    let Ok(mut other) = other.arg("60").uid(65534).spawn() else {
        eprintln!("only root can start a process of another user");
        return;
    };
    let output = attach(&other.id().to_string());
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(
        said(&output).contains("belongs to another user"),
        "{}",
        said(&output)
    );
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(300), "never {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The affinity of each thread of a process.
fn affinities(pid: u32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let allowed = |task: std::fs::DirEntry| {
        let status = std::fs::read_to_string(task.path().join("status")).ok()?;
        let line = status
            .lines()
            .find(|line| line.starts_with("Cpus_allowed_list"))?;
        Some(line.to_owned())
    };
    tasks.filter_map(|task| allowed(task.ok()?)).collect()
}

fn start(program: &Path, seconds: &str) -> Child {
    let mut command = Command::new(program);
    let child = command.arg(seconds).stdout(Stdio::piped()).spawn().unwrap();
    wait_until("running", || affinities(child.id()).len() > 4);
    child
}

/// Whether a process has a handler of SIGINT.
fn catches_interrupts(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let mut lines = status.lines();
    let mask = lines.find_map(|line| line.strip_prefix("SigCgt:"));
    mask.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).expect("a mask") & 2 != 0)
}

#[test]
fn a_process_that_was_attached_to_is_as_it_was_after_an_interrupt_and_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let program = victim(folder.path());
    for signal in ["-INT", "-KILL"] {
        let mut child = start(&program, "600");
        let before = affinities(child.id());
        let mut command = numaloc(&["--json", "attach", &child.id().to_string()]);
        let attached = command
            .args(SEEN)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let attached = attached.spawn().unwrap();
        wait_until("attached", || catches_interrupts(attached.id()));
        std::thread::sleep(Duration::from_millis(500));
        ok(Command::new("kill").args([signal, &attached.id().to_string()]));
        let output = attached.wait_with_output().unwrap();
        if signal == "-INT" {
            assert_eq!(output.status.code(), Some(0), "{}", said(&output));
            let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            let notes = json["notes"].to_string();
            assert!(notes.contains("detached"), "{json}");
        } else {
            assert_eq!(output.status.signal(), Some(9));
        }
        wait_until("as it was", || affinities(child.id()) == before);
        ok(Command::new("kill").arg(child.id().to_string()));
        let mut out = String::new();
        child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut out)
            .unwrap();
        assert_eq!((child.wait().unwrap().code(), &*out), (Some(7), "right\n"));
    }
}

/// Kills numaloc at moments that differ from run to run: the program ends as it would, or has not begun.
#[test]
fn programs_survive_a_numaloc_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let program = victim(folder.path());
    let mut completed = 0;
    // Six moments, and later ones where the program has not begun in any.
    let mut round = 0;
    while round < 6 || completed == 0 {
        assert!(round < 100, "the program never ran");
        let mut command = numaloc(&["run", "--online"]);
        command
            .args(SEEN)
            .arg("--")
            .arg(&program)
            .arg("0.4")
            .process_group(0);
        let mut tool = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(17 + 59 * round));
        tool.kill().unwrap();
        tool.wait().unwrap();
        // The program has the pipe too: it ends when the program does.
        let mut out = String::new();
        tool.stdout
            .take()
            .unwrap()
            .read_to_string(&mut out)
            .unwrap();
        assert!(["", "right\n"].contains(&&*out), "round {round}: {out}");
        completed += usize::from(!out.is_empty());
        round += 1;
    }
}

/// The child of process `parent` that executes `program`.
fn child_of(parent: u32, program: &Path) -> Option<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{parent}/task")).ok()?;
    let children =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("children")).ok());
    let children: Vec<u32> = children
        .flat_map(|text| {
            let numbers = text.split_whitespace().map(|child| child.parse().unwrap());
            numbers.collect::<Vec<u32>>()
        })
        .collect();
    children.into_iter().find(|child| {
        let executed = std::fs::read_link(format!("/proc/{child}/exe"));
        executed.is_ok_and(|executed| executed == program)
    })
}

#[test]
fn autopin_binds_the_threads_of_a_program_that_passes_marks() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().canonicalize().unwrap().join("changing");
    ok(Command::new("gcc")
        .args(["-O2", "-fopenmp", "-o"])
        .arg(&program)
        .arg(root().join("workloads/changing.c")));
    let arguments = [
        "--json",
        "run",
        "--online",
        "--thread-policy",
        "autopin",
        "--",
    ];
    let tool = numaloc(&arguments)
        .arg(&program)
        .args(["64", "100000", "1"])
        .env("OMP_NUM_THREADS", "4")
        .env("OMP_WAIT_POLICY", "passive")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("started", || child_of(tool.id(), &program).is_some());
    let child = child_of(tool.id(), &program).unwrap();
    wait_until("bound", || {
        let masks = affinities(child);
        let one = |mask: &String| !mask.contains(['-', ',']);
        // Where there is one PU, threads are bound from the beginning.
        masks.len() == 4 && masks.iter().all(one)
    });
    std::thread::sleep(Duration::from_millis(300));
    ok(Command::new("kill").arg(child.to_string()));
    let output = tool.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(143), "{}", said(&output));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(json["threads_bound"].as_u64().unwrap() >= 4, "{json}");
    assert_eq!(json["pages_moved"], 0);
    assert!(
        said(&output).contains("the program's marks"),
        "{}",
        said(&output)
    );
    // A program that runs already has nothing that counts.
    let own = std::process::id().to_string();
    let output = numaloc(&["attach", "--thread-policy", "autopin", &own])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(
        said(&output).contains("cannot count the marks"),
        "{}",
        said(&output)
    );
}
