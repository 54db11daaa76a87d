//! Errors of reading and writing files.

use std::path::{Path, PathBuf};

/// Why a file was not read or written. One line: what was attempted, on what, found, expected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The system reported an error.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was attempted: `read`, `write`, `create`, `rename`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// It is of another kind.
    #[error("{} is not a {expected}: {found}", path.display())]
    WrongKind {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong with it.
        found: String,
        /// What was expected: `numaloc profile`, `numaloc plan`.
        expected: &'static str,
    },
    /// Of the right kind, but with inconsistent content.
    #[error("cannot read {}: {place}: found {found}, expected {expected}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Line, column or row.
        place: String,
        /// What was found there.
        found: String,
        /// What was expected.
        expected: String,
    },
    /// Written by a later release.
    #[error("cannot read {}: format version {found}, this numaloc reads up to {supported}", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u64,
        /// The newest version that can be read.
        supported: u64,
    },
    /// The output cannot be written there.
    #[error(transparent)]
    Output(#[from] numaloc_files::OutputError),
}

impl FormatError {
    /// An I/O error.
    pub fn io(action: &'static str, path: &Path, source: std::io::Error) -> Self {
        Self::Io {
            action,
            path: path.to_owned(),
            source,
        }
    }

    /// Inconsistent content.
    pub fn corrupt(
        path: &Path,
        place: impl Into<String>,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> Self {
        Self::Corrupt {
            path: path.to_owned(),
            place: place.into(),
            found: one_line(found.into()),
            expected: expected.into(),
        }
    }

    /// What the user can do about it, if anything.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Output(error) => error.hint(),
            Self::Newer { .. } => Some("a newer numaloc"),
            Self::WrongKind { expected, .. } if *expected == "numaloc profile" => {
                Some("a folder made by `numaloc record -o NAME.numaloc -- CMD`")
            }
            Self::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
                Some("free some space, or write to another disk with -o")
            }
            _ => None,
        }
    }
}

fn one_line(text: String) -> String {
    text.replace('\n', " ")
}
