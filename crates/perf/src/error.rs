//! What can go wrong when samples are taken or imported. One line each: tried, on what, found, expected.

use std::path::{Path, PathBuf};

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PerfError {
    /// The system refused to read or run something.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was tried, on what.
        action: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// Not a `perf.data` file.
    #[error("{} is not a perf.data file: {found}", path.display())]
    NotPerfData {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        found: String,
    },
    /// A `perf.data` file whose content does not hold together.
    #[error("cannot read {}: byte {offset}: found {found}, expected {expected}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// What stands there.
        found: String,
        /// What should.
        expected: &'static str,
    },
    /// A sound file of a kind this importer does not read.
    #[error("cannot import {}: {found}", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What it holds.
        found: &'static str,
        /// What to do about it.
        hint: &'static str,
    },
    /// Nothing in it can be placed in memory.
    #[error("no sample with a data address in {source_name} ({samples} samples without)")]
    NoAddresses {
        /// File or program.
        source_name: String,
        /// How many samples had none.
        samples: u64,
    },
    /// The process that was asked for is not in it.
    #[error("no process {process} in {source_name}, only {}", found.join(", "))]
    NoProcess {
        /// Name or id that was asked for.
        process: String,
        /// File or program.
        source_name: String,
        /// Names that are there, the first few.
        found: Vec<String>,
    },
    /// This machine cannot sample memory accesses.
    #[error("cannot sample memory accesses: {missing}")]
    NoMemoryEvents {
        /// What was looked for and not found.
        missing: String,
    },
    /// The kernel refuses this user.
    #[error(
        "cannot sample memory accesses: perf_event_open: {source} (event {event}, /proc/sys/kernel/perf_event_paranoid = {paranoid})"
    )]
    Refused {
        /// The event.
        event: String,
        /// The kernel's setting, or `unreadable`.
        paranoid: String,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// The program could not be started.
    #[error("cannot run {program}: {source}")]
    Spawn {
        /// What was to be run.
        program: String,
        /// The system's answer.
        source: std::io::Error,
    },
}

impl PerfError {
    pub(crate) fn io(action: &str, on: &Path, source: std::io::Error) -> Self {
        Self::Io {
            action: format!("{action} {}", on.display()),
            source,
        }
    }

    /// What a user can do about it, where there is something.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotPerfData { .. } => Some(
                "a file made by `perf mem record`, `perf c2c record` or `perf record -d`, not through a pipe",
            ),
            Self::Unsupported { hint, .. } => Some(hint),
            Self::NoAddresses { .. } => Some(
                "`perf mem record CMD`, or `perf record -d -e EVENT CMD`, which record addresses",
            ),
            Self::NoMemoryEvents { .. } => Some(
                "numaloc record --frontend qemu -- CMD, which needs no hardware support (or leave --frontend out)",
            ),
            Self::Refused { .. } => Some(
                "sudo sysctl kernel.perf_event_paranoid=2, or give the user CAP_PERFMON; or numaloc record --frontend qemu",
            ),
            _ => None,
        }
    }
}
