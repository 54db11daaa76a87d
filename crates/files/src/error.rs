//! Why an output was not written.

use std::io;
use std::path::{Path, PathBuf};

/// One line: what was tried, on what, what was found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutputError {
    /// The system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried: `write`, `create`, `replace`.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// It is there already and nobody said to replace it.
    #[error("cannot write {}: it exists", path.display())]
    Exists {
        /// The output.
        path: PathBuf,
    },
    /// Something stands there that is never replaced.
    #[error("cannot write {}: it is {found}", path.display())]
    Kind {
        /// The output.
        path: PathBuf,
        /// What stands there.
        found: &'static str,
    },
    /// A folder that numaloc did not make.
    #[error("cannot replace {}: it is a folder, but not a {expected}", path.display())]
    Foreign {
        /// The output.
        path: PathBuf,
        /// What it would have to be.
        expected: &'static str,
    },
    /// The new output is in place, but files of the user could not be moved into it.
    #[error("{} is written, but files of yours that were in it are now in {}: {source}", path.display(), kept.display())]
    Kept {
        /// The output.
        path: PathBuf,
        /// Where the files are.
        kept: PathBuf,
        /// Why they could not be moved.
        source: io::Error,
    },
}

impl OutputError {
    /// A failure of the system.
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io {
            action,
            path: path.to_owned(),
            source,
        }
    }

    /// What a user can do about it, where there is something.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Exists { .. } => Some("--force to replace it, or another name with -o"),
            Self::Kind { .. } => Some("another name with -o"),
            Self::Foreign { .. } => {
                Some("another name with -o; --force replaces only what numaloc wrote")
            }
            Self::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                Some("free some space, or write to another disk with -o")
            }
            Self::Io { .. } => None,
            Self::Kept { .. } => Some("move them back yourself"),
        }
    }
}
