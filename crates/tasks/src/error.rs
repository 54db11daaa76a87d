//! Errors: of a program's calls, and of a run as a whole.

use std::path::PathBuf;

/// Why a call of a program fails. The C interface has a number for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The call is not allowed in this place or state.
    #[error("not now")]
    NotNow,
    /// The GUID is not that of a task.
    #[error("not a task")]
    NotATask,
    /// Memory is exhausted.
    #[error("out of memory")]
    OutOfMemory,
    /// The current task does not hold the data block.
    #[error("not held by this task")]
    NotHeld,
    /// A stale GUID, an object of the wrong kind, an index out of range, a slot satisfied or connected before.
    #[error(
        "something it was given is gone (stale GUID), of the wrong kind, out of range, or was satisfied or connected \
         before"
    )]
    Invalid,
    /// An object exists under the label.
    #[error("an object exists under the label")]
    Exists,
    /// Another task holds the data block in a mode that excludes this one.
    #[error("another task holds the block in a mode that excludes this one")]
    HeldByAnother,
    /// The event has not fired yet.
    #[error("the event has not fired yet")]
    Pending,
}

/// The result of most calls.
pub type Result<T> = std::result::Result<T, Error>;

/// A setting that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The machine cannot be found or read.
    #[error("NUMALOC_OCR_MACHINE: {0}")]
    Machine(#[from] numaloc_topology::TopologyError),
    /// A variable has a value that is not among those allowed.
    #[error("NUMALOC_OCR_{name} is {value:?}; expected {expected}")]
    Value {
        /// The variable's name without its prefix `NUMALOC_OCR_`.
        name: &'static str,
        /// Its value.
        value: String,
        /// The values allowed.
        expected: &'static str,
    },
    /// The build did not find oneTBB's allocator.
    #[error("this build has no allocator `tbb`: install libtbb-dev and build again")]
    NoTbbAllocator,
}

/// Why a run cannot start, or cannot write its results.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The settings cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The plan cannot be read, or the profile cannot be written.
    #[error(transparent)]
    File(#[from] numaloc_task_plan::FileError),
    /// The plan is for a larger machine.
    #[error("the plan is for a machine of {planned} nodes, this one has {nodes}")]
    TooManyNodes {
        /// Nodes of the plan.
        planned: usize,
        /// Nodes of the machine.
        nodes: usize,
    },
    /// The profile's folder cannot be created.
    #[error("cannot create {}: {why}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        why: std::io::Error,
    },
    /// The system refuses the addresses of the arena.
    #[error("cannot reserve addresses: {0}")]
    Addresses(std::io::Error),
    /// Memory is exhausted before the first task.
    #[error("out of memory")]
    OutOfMemory,
    /// The build did not find oneTBB.
    #[error("this build has no oneTBB scheduler: install libtbb-dev and build again")]
    NoTbbScheduler,
    /// The statistics cannot be written.
    #[error("cannot write statistics to {}: {why}", path.display())]
    Statistics {
        /// The file.
        path: PathBuf,
        /// The system's error.
        why: std::io::Error,
    },
}
