//! Runs programs natively and in the code cache.
#![allow(dead_code, reason = "each test file uses a part")]

use std::io::{Read as _, Seek as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

pub const NATIVE: &str = env!("CARGO_BIN_EXE_numaloc-native");

pub fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

pub fn workloads() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workloads")
}

pub fn folder() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    FOLDER
        .get_or_init(|| tempfile::tempdir().expect("a folder"))
        .path()
}

/// Compiles a program with the test's flags.
pub fn compiled(source: &Path, name: &str, flags: &[&str]) -> PathBuf {
    let program = folder().join(name);
    let cpp = source.extension().is_some_and(|e| e == "cc");
    let status = Command::new(if cpp { "c++" } else { "cc" })
        .args(["-O2", "-pthread", "-o"])
        .arg(&program)
        .arg(source)
        .args(flags)
        .arg("-lm")
        .status()
        .expect("a compiler");
    assert!(status.success(), "{} compiles", source.display());
    program
}

pub fn ours(name: &str, flags: &[&str]) -> PathBuf {
    let stem = name.split('.').next().unwrap_or(name);
    let file = format!("{stem}{}", flags.concat().replace('/', "_"));
    compiled(&programs().join(name), &file, flags)
}

/// Runs a program, and ends it if it hangs: if none of its processes could run for a minute, or if they have used
/// more processor time than any test takes. A busy machine delays both.
pub fn run(mut command: Command) -> Output {
    const PAUSE: Duration = Duration::from_millis(10);
    const PAUSES: u32 = 100;
    const IDLE: u32 = 60;
    const LONGEST: u64 = 300;
    let outputs = [(); 2].map(|()| tempfile::tempfile_in(folder()).expect("a file"));
    let [stdout, stderr] = outputs.each_ref().map(|file| file.try_clone().expect("it"));
    let mut child = command
        .env("LC_ALL", "C")
        .env("TMPDIR", folder())
        .current_dir(folder())
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(stderr)
        .process_group(0)
        .spawn()
        .expect("it runs");
    let (mut looks, mut idle, mut before) = (0, 0, 0);
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break status;
        }
        std::thread::sleep(PAUSE);
        looks += 1;
        if looks % PAUSES != 0 {
            continue;
        }
        let (ready, ticks) = progress(child.id());
        let waits = !ready && ticks == before;
        idle = if waits { idle + 1 } else { 0 };
        before = ticks;
        if idle > IDLE || ticks > LONGEST * TICKS {
            let group = format!("-{}", child.id());
            let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        }
    };
    let [stdout, stderr] = outputs.map(|mut file| {
        let mut bytes = Vec::new();
        file.rewind().expect("a file");
        file.read_to_end(&mut bytes).expect("a file");
        bytes
    });
    Output {
        status,
        stdout,
        stderr,
    }
}

/// Clock ticks of the kernel's statistics in a second.
const TICKS: u64 = 100;

/// Whether a process of a group is ready to run, and the processor time of all in ticks.
pub fn progress(group: u32) -> (bool, u64) {
    let processes = std::fs::read_dir("/proc").expect("processes").flatten();
    let (mut ready, mut ticks) = (false, 0);
    for process in processes {
        let Ok(threads) = std::fs::read_dir(process.path().join("task")) else {
            continue;
        };
        for thread in threads.flatten() {
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            // After the name, which may contain anything: state, parent, group.
            let Some((_, fields)) = stat.rsplit_once(") ") else {
                continue;
            };
            let fields: Vec<&str> = fields.split(' ').collect();
            let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
            if number(2) == Some(group.into()) {
                ready |= matches!(fields[0], "R" | "D");
                ticks += number(11).unwrap_or(0) + number(12).unwrap_or(0);
            }
        }
    }
    (ready, ticks)
}

pub fn natively(program: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments);
    run(command)
}

pub fn translated(options: &[&str], program: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(NATIVE);
    command.args(options).arg("--").arg(program).args(arguments);
    run(command)
}

pub fn shown(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let status = output.status;
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    format!("{status}\n{out}\n{err}")
}

/// A program killed by a signal may be reported as one that ends with 128 plus its number.
pub fn same_with(options: &[&str], program: &Path, arguments: &[&str]) {
    use std::os::unix::process::ExitStatusExt;
    let expected = natively(program, arguments);
    let got = translated(options, program, arguments);
    let code = expected.status.code();
    let code = code.or(expected.status.signal().map(|signal| 128 + signal));
    let both = format!(
        "natively: {}\ntranslated: {}",
        shown(&expected),
        shown(&got)
    );
    let got_code = got.status.code();
    let got_code = got_code.or(got.status.signal().map(|signal| 128 + signal));
    assert_eq!(got_code, code, "{both}");
    assert_eq!(got.stdout, expected.stdout, "{both}");
    assert_eq!(got.stderr, expected.stderr, "{both}");
}

/// The same output and status as natively, when nothing is recorded and when all accesses are, also if all code is
/// executed in paths.
pub fn same(program: &Path, arguments: &[&str]) {
    with_journals(|settings| {
        same_with(&["--all-paths", "--record", settings], program, arguments);
    });
    same_but_for_paths(program, arguments);
}

/// Without the run in which all code is executed in paths: it translates every block of a large program again and
/// again.
pub fn same_but_for_paths(program: &Path, arguments: &[&str]) {
    same_with(&[], program, arguments);
    with_journals(|settings| same_with(&["--record", settings], program, arguments));
}

/// Calls `run` with settings for a recording, which must leave a journal.
fn with_journals(run: impl FnOnce(&str)) {
    let journals = tempfile::tempdir().expect("a folder");
    run(&format!("folder={}", journals.path().display()));
    let files = std::fs::read_dir(journals.path()).expect("the folder");
    let sizes = files.flatten().filter(|file| {
        let name = file.file_name();
        name.to_string_lossy().ends_with(".journal") && file.metadata().is_ok_and(|m| m.len() > 0)
    });
    assert!(sizes.count() > 0, "nothing was recorded");
}

pub fn same_shell(script: &str) {
    same(Path::new("/bin/sh"), &["-c", script]);
}
