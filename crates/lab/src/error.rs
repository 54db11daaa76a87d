//! Why a lab run failed.

use std::path::{Path, PathBuf};

/// A failed lab run. Each says what was tried, on what, and what was found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// The machine asked for cannot be built.
    #[error("cannot build that machine: {0}")]
    Machine(String),
    /// A file of ours or of the user cannot be used.
    #[error("cannot {what} {path}: {why}", path = .path.display())]
    File {
        /// Verb.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The kernel's words, or ours.
        why: String,
    },
    /// A tool we need is not there or failed.
    #[error("cannot run {tool}: {why}")]
    Tool {
        /// The command.
        tool: String,
        /// What happened.
        why: String,
        /// Debian package that has it.
        package: &'static str,
    },
    /// No kernel to boot.
    #[error("no guest kernel: {0}")]
    Kernel(String),
    /// The guest did not come up, or came down too early.
    #[error("the virtual machine failed: {why}{}", tail(.console))]
    Guest {
        /// What was waited for and what happened.
        why: String,
        /// Its console's last lines.
        console: String,
    },
    /// The guest ended before the program was started: its kernel panicked, as happens on a busy host.
    #[error("the virtual machine failed: {why}{}", tail(.console))]
    Died {
        /// How far it had come.
        why: String,
        /// Its console's last lines.
        console: String,
    },
    /// The guest hung before it was ready.
    #[error("the virtual machine was not ready after {seconds} s{}", tail(.console))]
    NotReady {
        /// How long was waited.
        seconds: u64,
        /// Its console's last lines.
        console: String,
    },
    /// The counts cannot be trusted.
    #[error("cannot trust the access counts: {0}")]
    Counts(String),
    /// The program did not start.
    #[error("cannot start {program} in the virtual machine: {why}")]
    NotStarted {
        /// The program.
        program: String,
        /// The guest kernel's words.
        why: String,
        /// Its errno.
        errno: i32,
    },
    /// It took longer than allowed.
    #[error("the program did not end within {seconds} s")]
    Timeout {
        /// The limit.
        seconds: u64,
    },
    /// The user pressed Ctrl-C, or we were told to end.
    #[error("interrupted by signal {signal}")]
    Interrupted {
        /// Its number.
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
        "; its console ends: {}",
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
