//! Files that others gave us, and where results go: a file, a folder of our own making, or a stream.
//!
//! An input is a regular file of bounded size, so that nobody makes us wait for a FIFO or fill the memory. An output is checked when a command starts and written when it ends, so that a refusal costs no run:
//!
//! - what exists is replaced only if the user said so (`--force`), and only if it is a regular file or a folder
//!   of our own; a folder loses the files that numaloc wrote, and keeps every other;
//! - a FIFO or a character device is written into, as a shell's `>` does; a block device, a socket and a foreign
//!   folder are refused, whatever the user said;
//! - a symbolic link stays one: what it leads to is written. Modes and owners of what is replaced are kept;
//! - under the final name stands a complete output or what stood there before. The work is done under a random
//!   name in the same folder, which nobody can predict in a folder that others may write to.
//!
//! | module | what |
//! |---|---|
//! | [`FileOutput`] | one file, or a stream in its place |
//! | [`FolderOutput`] | a folder of files |
//! | [`mod@input`] | regular files, opened and read with bounds |
//! | [`mod@stdout`] | standard output, whose failures are reported |
//! | `closed` | whether standard output was open when the process started |

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

/// Longest part of a name that is kept in the name of an unfinished output: names end at 255 bytes.
const KEPT_NAME: usize = 180;

/// The folder that `path` is in.
fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// How unfinished outputs of `path` are called, up to a random ending.
fn unfinished(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let kept: String = name
        .char_indices()
        .take_while(|(at, _)| *at < KEPT_NAME)
        .map(|(_, character)| character)
        .collect();
    format!(".{kept}.partial-")
}
