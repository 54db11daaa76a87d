//! Errors of writing an output.

use std::io;
use std::path::{Path, PathBuf};

/// Why an output was not written. One line: what was attempted, on what, what was found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutputError {
    /// The system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was attempted: `write`, `create`, `replace`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It exists already and replacing was not requested.
    #[error("cannot write {}: it exists", path.display())]
    Exists {
        /// The output.
        path: PathBuf,
    },
    /// There is something that is never replaced.
    #[error("cannot write {}: it is {found}", path.display())]
    Kind {
        /// The output.
        path: PathBuf,
        /// What is there.
        found: &'static str,
    },
    /// A symbolic link on the way that another user may have put there.
    #[error("cannot write {}: the symbolic link {} belongs to user {owner}, who can change where it leads", path.display(), link.display())]
    Link {
        /// The output.
        path: PathBuf,
        /// The link.
        link: PathBuf,
        /// User id of its owner.
        owner: u32,
    },
    /// The command reads it.
    #[error("cannot write {}: the command reads it as {}", path.display(), input.display())]
    Input {
        /// The output.
        path: PathBuf,
        /// The same file, as the command was given it to read.
        input: PathBuf,
    },
    /// A folder that numaloc did not create.
    #[error("cannot replace {}: it is a folder, but not a {expected}", path.display())]
    Foreign {
        /// The output.
        path: PathBuf,
        /// What it would have to be to be replaced.
        expected: &'static str,
    },
    /// The new output is in place, but files of the user could not be moved into it.
    #[error("{} is written, but your files that were in it are now in {}: {source}", path.display(), kept.display())]
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
    /// An error of the system.
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io {
            action,
            path: path.to_owned(),
            source,
        }
    }

    /// What the user can do about it, if anything.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Exists { .. } => Some("--force to replace it, or another name with -o"),
            Self::Kind { .. } | Self::Input { .. } => Some("another name with -o"),
            Self::Link { .. } => Some("the name of the file or folder that the link leads to"),
            Self::Foreign { .. } => {
                Some("another name with -o; --force replaces only what numaloc wrote")
            }
            Self::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                Some("free some space, or write to another disk with -o")
            }
            Self::Io { .. } => None,
            Self::Kept { .. } => Some("move them back"),
        }
    }
}
