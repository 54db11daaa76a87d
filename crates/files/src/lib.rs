//! Reads input files and writes outputs: a file, a folder created by numaloc, or a stream.
//!
//! An input is a regular file of limited size, so that a file of another user can neither block us (a FIFO) nor
//! exhaust the memory. An output is checked when a command starts and written when it ends, so that a refusal comes
//! before the run:
//!
//! - an existing output is replaced only on request (`--force`), and only if it is a regular file or a folder
//!   created by numaloc; in a folder, files that numaloc wrote are replaced and all others are kept;
//! - a FIFO or a character device is written to, as with a shell's `>`; a block device, a socket and a foreign
//!   folder are always refused;
//! - a symbolic link is kept and its target is written. Replaced files keep mode and owner;
//! - at any time, the final name has either the complete output or what was there before. The output is written under
//!   a random name in the same folder, which is unpredictable in case others may write to that folder.
//!
//! | module | does |
//! |---|---|
//! | [`FileOutput`] | writes one file, or to a stream in its place |
//! | [`FolderOutput`] | writes a folder of files |
//! | [`mod@input`] | opens and reads regular files with a size limit |
//! | [`mod@stdout`] | writes to standard output and reports failures |
//! | `closed` | determines whether standard output was open when the process started |

mod closed;
mod error;
mod file;
mod folder;
pub mod input;
pub mod stdout;

pub use error::OutputError;
pub use file::FileOutput;
pub use folder::{FolderKind, FolderOutput};

use std::path::{Path, PathBuf};

/// Longest part of a name that is used in the name of an unfinished output: names are limited to 255 bytes.
const KEPT_NAME: usize = 180;

/// The folder that `path` is in.
fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Prefix of the names of unfinished outputs of `path`; a random suffix follows.
fn unfinished(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let kept: String = name
        .char_indices()
        .take_while(|(at, _)| *at < KEPT_NAME)
        .map(|(_, character)| character)
        .collect();
    format!(".{kept}.partial-")
}
