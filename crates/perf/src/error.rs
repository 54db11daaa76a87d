//! Errors of sampling and importing. Each message is one line: what was attempted, on what, found, expected.

use std::path::{Path, PathBuf};

/// Why no profile was made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PerfError {
    /// The system refused to read or run something.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was attempted, on what.
        action: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// Not a `perf.data` file.
    #[error("{} is not a perf.data file: {found}", path.display())]
    NotPerfData {
        /// The file.
        path: PathBuf,
        /// What was found instead.
        found: String,
    },
    /// A corrupt `perf.data` file.
    #[error("cannot read {}: byte {offset}: found {found}, expected {expected}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Byte offset.
        offset: u64,
        /// What was found there.
        found: String,
        /// What was expected.
        expected: &'static str,
    },
    /// A valid file of a kind that this importer does not support.
    #[error("cannot import {}: {found}", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What it holds.
        found: &'static str,
        /// What the user can do.
        hint: &'static str,
    },
    /// The samples hold amounts that no run reaches.
    #[error("the samples make no profile: {0}")]
    Profile(#[from] numaloc_model::ProfileError),
    /// No sample has a data address.
    #[error("no sample with a data address in {source_name} ({samples} samples without)")]
    NoAddresses {
        /// File or program.
        source_name: String,
        /// Number of samples without an address.
        samples: u64,
    },
    /// The process the user asked for is not in it.
    #[error("no process {process} in {source_name}, only {}", found.join(", "))]
    NoProcess {
        /// Name or id that was asked for.
        process: String,
        /// File or program.
        source_name: String,
        /// Names of processes that are there, the first few.
        found: Vec<String>,
    },
    /// This machine cannot sample memory accesses.
    #[error("cannot sample memory accesses: {missing}")]
    NoMemoryEvents {
        /// What was looked for and not found.
        missing: String,
    },
    /// The kernel does not permit this user to sample.
    #[error(
        "cannot sample memory accesses: perf_event_open: {source} (event {event}, /proc/sys/kernel/perf_event_paranoid = {paranoid})"
    )]
    Refused {
        /// The event.
        event: String,
        /// The kernel's setting, or `unreadable`.
        paranoid: String,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The program could not be started.
    #[error("cannot run {program}: {source}")]
    Spawn {
        /// The program.
        program: String,
        /// The system's error.
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

    /// What the user can do about it, if anything.
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
