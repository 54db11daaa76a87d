//! What runs already: a window of it as a profile, and `top`. The service is as if numaloc were not there.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use numaloc_model::profile::{ObjectKind, WindowSource};

use crate::support::{numaloc, ok};

/// A service: memory that it shares with a process that it creates at once, and one that it creates when it reads a
/// line. Each line is answered.
const SERVER: &str = "
import mmap, os, sys, threading, time
pool = mmap.mmap(-1, 1 << 20)
def work():
    while True:
        for at in range(0, len(pool), 4096): pool[at] = 1
        time.sleep(0.002)
def create():
    if os.fork() == 0: work()
create()
threading.Thread(target=work, daemon=True).start()
print('ready', flush=True)
for line in sys.stdin:
    if line == 'create\\n': create()
    print(line, end='', flush=True)
os.killpg(0, 9)
";

/// The service, its lines, and its input.
struct Server {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
}

impl Server {
    fn start() -> Self {
        use std::os::unix::process::CommandExt;
        let mut child = Command::new("python3")
            .args(["-c", SERVER])
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut server = Self { child, out };
        assert_eq!(server.line(), "ready\n");
        server
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line
    }

    fn ask(&mut self, line: &str) {
        let mut input = self.child.stdin.as_ref().unwrap();
        input.write_all(line.as_bytes()).unwrap();
        assert_eq!(self.line(), line);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn window(folder: &Path, options: &[&str]) -> Command {
    let mut command = numaloc(&["record", "-q", "-o", "w.numaloc", "--force"]);
    command.args(options).current_dir(folder);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn wait_for(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..1000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what} did not come");
}

/// Whether numaloc has installed its handlers: from then on, Ctrl-C ends the window.
fn looks(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    mask.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() & 2 != 0)
}

#[test]
fn a_window_has_the_whole_tree_and_what_it_shares_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start();
    let options = [
        "--attach",
        &server.pid(),
        "--for",
        "1500ms",
        "--source",
        "scan",
    ];
    let recording = window(folder.path(), &options).spawn().unwrap();
    wait_for("the window", || looks(recording.id()));
    std::thread::sleep(Duration::from_millis(300));
    server.ask("create\n");
    let output = recording.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    server.ask("still there\n");

    let path = folder.path().join("w.numaloc");
    let profile = numaloc_formats::profile::read(&path).unwrap();
    let paths: Vec<&str> = profile
        .threads()
        .iter()
        .map(|thread| thread.path.as_str())
        .collect();
    assert_eq!(paths, ["0", "0.1", "0/1", "0/2"]);
    let found = profile.meta().window.as_ref().unwrap();
    assert_eq!((found.source, found.processes), (WindowSource::Scan, 3));
    assert!(profile.meta().sampled < 0.1, "{}", profile.meta().sampled);
    let pages = profile.pages();
    let shared = pages.pages().iter().filter(|page| {
        let object = page.object.map(|object| profile.object(object));
        object.is_some_and(|object| object.kind == ObjectKind::Shared && object.size == 1 << 20)
    });
    // The kernel may not show the marks of a page in each process, but of most in several.
    let users: Vec<usize> = shared.map(|page| pages.accesses(page).len()).collect();
    assert_eq!(users.len(), 256);
    assert!(
        users.iter().filter(|users| **users >= 2).count() > 128,
        "{users:?}"
    );
    let pool = found
        .segments
        .iter()
        .find(|segment| segment.is_shared && segment.bytes() == 1 << 20);
    assert!(
        pool.is_some_and(|pool| pool.processes == 3),
        "{:?}",
        found.segments
    );

    let answer = ok(numaloc(&["show", "w.numaloc"]).current_dir(&folder));
    assert!(
        answer.contains("by page scanning") && answer.contains("unsure"),
        "{answer}"
    );
    let text = ok(numaloc(&["show", "--all", "w.numaloc"]).current_dir(&folder));
    for part in [
        "window of 1.",
        "page scanning",
        "memory by node",
        "sampled: uses of pages",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    for command in [
        &["report", "w.numaloc", "-o", "w.html"][..],
        &[
            "plan",
            "w.numaloc",
            "--machine",
            "purple",
            "--anyway",
            "-o",
            "w.json",
        ],
    ] {
        ok(numaloc(command).current_dir(&folder));
    }
}

#[test]
fn page_faults_show_the_thread_and_an_interrupt_ends_the_window() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start();
    let options = [
        "--attach",
        &server.pid(),
        "--source",
        "page-faults",
        "--for",
        "60min",
    ];
    let recording = window(folder.path(), &options).spawn().unwrap();
    wait_for("the window", || looks(recording.id()));
    std::thread::sleep(Duration::from_millis(300));
    server.ask("create\n");
    std::thread::sleep(Duration::from_millis(200));
    ok(Command::new("kill").args(["-INT", &recording.id().to_string()]));
    let output = recording.wait_with_output().unwrap();
    let text = said(&output);
    if text.contains("perf_event_paranoid") {
        return; // Nothing can be sampled here.
    }
    assert_eq!(output.status.code(), Some(0), "{text}");
    let profile = numaloc_formats::profile::read(&folder.path().join("w.numaloc")).unwrap();
    let meta = profile.meta();
    assert!(meta.window.as_ref().unwrap().seconds < 60.0);
    assert!(
        meta.notes
            .iter()
            .any(|note| note.contains("ended by a signal")),
        "{:?}",
        meta.notes
    );
    // The new process is seen by the pages that it got.
    assert!(
        profile
            .threads()
            .iter()
            .any(|thread| thread.path == "0/2" && thread.accesses > 0)
    );
    server.ask("still there\n");
}

#[test]
fn a_service_answers_after_each_of_ten_kills_of_numaloc() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start();
    for round in 0..10 {
        let mut recording = window(folder.path(), &["--attach", &server.pid()])
            .spawn()
            .unwrap();
        wait_for("the window", || looks(recording.id()));
        std::thread::sleep(Duration::from_millis(20 * round));
        server.ask(&format!("round {round}\n"));
        recording.kill().unwrap();
        recording.wait().unwrap();
        server.ask("after it\n");
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    assert!(status.contains("TracerPid:\t0"), "{status}");
}

#[test]
fn what_is_not_there_is_one_line_and_another_status() {
    let folder = tempfile::tempdir().unwrap();
    for (options, status, part) in [
        (
            &["--attach", "2147483647"][..],
            1,
            "there is no process 2147483647",
        ),
        (
            &["--unit", "numaloc-no-such"],
            1,
            "unit numaloc-no-such has no control group",
        ),
        (
            &["--cgroup", "/no/such"],
            1,
            "there is no control group /no/such",
        ),
        (&["--for", "1s"], 2, ""),
        (&["--attach", "1", "--source", "eyes"], 2, "eyes"),
    ] {
        let output = window(folder.path(), options).output().unwrap();
        let text = said(&output);
        assert_eq!(output.status.code(), Some(status), "{options:?}: {text}");
        assert!(text.starts_with("error: ") && text.contains(part), "{text}");
    }
    let output = numaloc(&["top", "2147483647"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert_eq!(numaloc(&["top"]).output().unwrap().status.code(), Some(2));
}

#[test]
fn top_leaves_the_terminal_as_it_was_after_a_key_and_after_a_signal() {
    let server = Server::start();
    for signal in [None, Some("-INT"), Some("-TERM")] {
        let program = env!("CARGO_BIN_EXE_numaloc");
        let line = format!(
            "stty -a > before; {program} top {} --interval 100ms; stty -a > after",
            server.pid()
        );
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("script");
        command
            .args(["-qec", &line, "/dev/null"])
            .current_dir(&folder);
        let script = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let top = || {
            let text = format!("{program} top {}", server.pid());
            let output = Command::new("pgrep")
                .args(["-fx", &format!("{text} .*")])
                .output()
                .unwrap();
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        wait_for("top", || top().parse().is_ok_and(looks));
        std::thread::sleep(Duration::from_millis(300));
        match signal {
            Some(signal) => {
                ok(Command::new("kill").args([signal, &top()]));
            }
            None => script.stdin.as_ref().unwrap().write_all(b"s\nq").unwrap(),
        }
        let output = script.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            text.contains("\x1b[?1049h") && text.contains("python3"),
            "{text}"
        );
        assert!(text.ends_with("\x1b[?25h\x1b[?1049l"), "{signal:?}: {text}");
        let state = |name| std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!(state("before"), state("after"), "{signal:?}");
    }
}
