//! What `record` says when the profile is written: the answer, the command that follows, and with `--open` the report.
//!
//! A process of our own makes the answer from the written profile, as `show` does. A plan search may take long or need
//! memory, and nothing there may change what `record` has done. So the process has [`MOST_CPU_S`], its failure is one
//! line, and the kernel ends it first where memory is short.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use numaloc_report::heatmap::Style;
use numaloc_report::next::{MACHINE, quoted};
use numaloc_report::text::{Page, the_answer};
use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};

use crate::browser;
use crate::commands::report::base_name;
use crate::error::CliError;
use crate::setting::SettingArgs;
use crate::ui::{Ui, stderr};

/// First argument of the process that makes the answer; the profile and the columns of the terminal follow.
pub const ANSWER: &str = "answer-of";

/// Seconds of processor time that the answer may take.
const MOST_CPU_S: u64 = 5;
/// The longest that the end of a recording waits for it, on a machine that has little time for it.
const LIMIT: Duration = Duration::from_secs(20);
/// Interval between checks whether the answer is there.
const TICK: Duration = Duration::from_millis(5);

/// Writes the answer for the profile in `folder` to standard error, or in one line why there is none.
pub(super) fn give(folder: &Path, ui: &Ui) {
    if ui.quiet {
        return;
    }
    let made = own().and_then(|mut command| {
        command.arg(ANSWER).arg(folder);
        command.arg(ui.columns_of_stderr().to_string());
        within(&mut command, LIMIT)
    });
    match made {
        Ok(text) => stderr(&text),
        Err(why) => ui.remark(format_args!(
            "no answer here, {why}; the profile is complete: numaloc show {}",
            quoted(&folder.display().to_string())
        )),
    }
}

/// Writes the report of the profile in `folder` next to it and shows it in the browser.
pub(super) fn open(folder: &Path, force: bool, ui: &Ui) {
    let page = folder.with_file_name(format!("{}.html", base_name(folder)));
    let written = own().and_then(|mut command| {
        command.args(["--quiet", "report", "-o"]).arg(&page);
        command.args(force.then_some("--force"));
        command.arg("--").arg(folder);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.status().map_err(|error| error.to_string())
    });
    match written {
        Ok(status) if status.success() => browser::open(&page, ui),
        // The process has reported why.
        Ok(_) => {}
        Err(why) => ui.remark(format_args!("no report: {why}")),
    }
}

fn own() -> Result<Command, String> {
    let program = std::env::current_exe();
    program.map(Command::new).map_err(|error| error.to_string())
}

/// What `command` writes to its standard output.
///
/// # Errors
/// In words: it failed, or it was ended because it took longer than `limit`.
fn within(command: &mut Command, limit: Duration) -> Result<String, String> {
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let read = |stream: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = stream.map(|mut stream| stream.read_to_end(&mut bytes));
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let text = read(child.stdout.take().map(|stream| Box::new(stream) as _));
    let errors = read(child.stderr.take().map(|stream| Box::new(stream) as _));
    let began = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if began.elapsed() < limit => std::thread::sleep(TICK),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("it takes longer than {} s", limit.as_secs_f64()));
            }
            Err(error) => return Err(error.to_string()),
        }
    };
    let (text, errors) = (
        text.join().unwrap_or_default(),
        errors.join().unwrap_or_default(),
    );
    let why = errors.lines().next().unwrap_or_default();
    match why.strip_prefix("error: ") {
        _ if status.success() => Ok(text),
        Some(why) => Err(why.to_owned()),
        None if status.signal() == Some(Signal::KILL.as_raw()) => Err(format!(
            "it takes more than {MOST_CPU_S} s of processor time, or more memory than there is"
        )),
        None => Err(format!("it ended with {status}")),
    }
}

/// The process that makes the answer: `words` are the profile and the number of columns.
pub fn answer_of(words: &[OsString]) -> ExitCode {
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let limit = Rlimit {
        current: Some(MOST_CPU_S),
        maximum: Some(MOST_CPU_S),
    };
    let _ = setrlimit(Resource::Cpu, limit);
    let answered = crate::panics::contained(|| answer(words));
    match answered {
        Some(Ok(text)) => {
            let written = numaloc_files::stdout::write(text.as_bytes());
            ExitCode::from(u8::from(written.is_err()))
        }
        Some(Err(error)) => {
            stderr(&error.text());
            ExitCode::from(error.status)
        }
        None => ExitCode::FAILURE,
    }
}

fn answer(words: &[OsString]) -> Result<String, CliError> {
    let [path, columns] = words else {
        return Err(CliError::usage(
            "expected a profile and a number of columns",
        ));
    };
    let path = PathBuf::from(path);
    let columns = columns.to_str().and_then(|text| text.parse().ok());
    let setting = SettingArgs::default();
    let profile = setting.open(&path)?;
    let (mut found, resolved) = setting.characterise(&profile)?;
    let problem = !found.problems.is_empty();
    let steps = resolved.next(&path, &profile, &found, &[]);
    let first = steps.first().filter(|_| problem);
    let step = first.map(|step| &*step.command);
    // What records again or simulates needs no plan of this machine.
    let change = found.problems.first().and_then(|problem| problem.change);
    let is_known = !resolved.nodes_only || change.is_some();
    let step = step.filter(|step| is_known && (change.is_some() || !step.contains(MACHINE)));
    // Remedies name the plan of a page, which here only the command that follows may make.
    if step.is_none() || change.is_some() {
        for problem in &mut found.problems {
            problem.remedy = problem.remedy.replace("the plan below", "a plan");
        }
    }
    let page = Page {
        profile: &profile,
        found: &found,
        assumed: &resolved.assumed,
        next: &[],
    };
    let style = Style {
        unicode: crate::commands::locale_is_utf8(),
        colour: true,
    };
    let answer = the_answer(page, columns.unwrap_or(usize::MAX), style);
    Ok(format!("{answer}{}", next(&path, step)))
}

/// The line with the command that follows: the plan if there is a problem and the machine is known, else the reasons.
fn next(path: &Path, step: Option<&str>) -> String {
    let path = quoted(&path.display().to_string());
    match step {
        Some(step) => format!("Next     {step}\n"),
        None => format!("Next     numaloc show {path} --why\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn an_answer_that_takes_too_long_or_fails_is_one_line() {
        let soon = Duration::from_secs(60);
        assert_eq!(within(&mut shell("echo yes"), soon), Ok("yes\n".to_owned()));
        let failed = within(&mut shell("echo error: no memory >&2; exit 1"), soon);
        assert_eq!(failed, Err("no memory".to_owned()));
        let killed = within(&mut shell("kill -9 $$"), soon).unwrap_err();
        assert!(
            killed.starts_with("it takes more than 5 s of processor time"),
            "{killed}"
        );
        let failed = within(&mut shell("exit 7"), soon).unwrap_err();
        assert_eq!(failed, "it ended with exit status: 7");
        let began = Instant::now();
        let late = within(&mut shell("exec sleep 60"), Duration::from_millis(200));
        assert_eq!(late, Err("it takes longer than 0.2 s".to_owned()));
        assert!(began.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn more_than_a_pipe_holds_is_read() {
        let many = within(&mut shell("yes | head -c 1000000"), Duration::from_secs(60));
        assert_eq!(many.map(|text| text.len()), Ok(1_000_000));
    }
}
