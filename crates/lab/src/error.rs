//! The errors of a lab run.

use std::path::{Path, PathBuf};

/// A failed lab run. Each message states what was attempted, on what, and what was found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// The requested machine cannot be built.
    #[error("cannot build that machine: {0}")]
    Machine(String),
    /// A file, ours or the user's, cannot be used.
    #[error("cannot {what} {path}: {why}", path = .path.display())]
    File {
        /// The verb of the message.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The kernel's error, or ours.
        why: String,
    },
    /// A required tool is missing or failed.
    #[error("cannot run {tool}: {why}")]
    Tool {
        /// The command.
        tool: String,
        /// The error.
        why: String,
        /// The Debian package that provides it.
        package: &'static str,
    },
    /// There is no kernel to boot.
    #[error("no guest kernel: {0}")]
    Kernel(String),
    /// The guest did not come up, or ended too early.
    #[error("the virtual machine failed: {why}{}", tail(.console))]
    Guest {
        /// What was waited for, and what happened.
        why: String,
        /// The last lines of its console.
        console: String,
    },
    /// The guest ended before the program started: its kernel panicked, which happens on a busy host.
    #[error("the virtual machine failed: {why}{}", tail(.console))]
    Died {
        /// How far it had come.
        why: String,
        /// The last lines of its console.
        console: String,
    },
    /// The guest hung before it was ready.
    #[error("the virtual machine was not ready after {seconds} s{}", tail(.console))]
    NotReady {
        /// The waiting time.
        seconds: u64,
        /// The last lines of its console.
        console: String,
    },
    /// The counts are not reliable.
    #[error("cannot trust the access counts: {0}")]
    Counts(String),
    /// The program did not start.
    #[error("cannot start {program} in the virtual machine: {why}")]
    NotStarted {
        /// The program.
        program: String,
        /// The guest kernel's error message.
        why: String,
        /// The errno.
        errno: i32,
    },
    /// It exceeded the time limit.
    #[error("the program did not end within {seconds} s")]
    Timeout {
        /// The limit.
        seconds: u64,
    },
    /// The user pressed Ctrl-C, or another process asked us to end.
    #[error("interrupted by signal {signal}")]
    Interrupted {
        /// The signal's number.
        signal: i32,
    },
}

fn tail(console: &str) -> String {
    let lines: Vec<&str> = console
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    if lines.is_empty() {
        return String::new();
    }
    format!(
        "; the end of its console: {}",
        lines[lines.len().saturating_sub(4)..].join(" | ")
    )
}

impl LabError {
    /// A file that could not be used.
    pub(crate) fn file(what: &'static str, path: &Path, why: impl std::fmt::Display) -> Self {
        Self::File {
            what,
            path: path.to_owned(),
            why: why.to_string(),
        }
    }
}
