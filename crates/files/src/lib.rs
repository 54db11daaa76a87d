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
//! - a symbolic link is kept and its target is written, unless another user may have put the link there. Replaced
//!   files keep mode and owner;
//! - what is done with an output is done in an opened folder, so that no other user can redirect it;
//! - no command replaces a file that it reads;
//! - at any time, the final name has either the complete output or what was there before. The output is written under
//!   a random name in the same folder, which is unpredictable in case others may write to that folder.
//!
//! | module | does |
//! |---|---|
//! | [`FileOutput`] | writes one file, or to a stream in its place |
//! | [`FolderOutput`] | writes a folder of files |
//! | [`mod@input`] | opens and reads regular files with a size limit |
//! | [`mod@roles`] | finds a file that a command reads and would replace |
//! | `place` | finds and opens the folder of an output |
//! | `unfinished` | creates files and folders that get their names when they are complete |
//! | [`mod@stdout`] | writes to standard output and reports failures |
//! | [`mod@cell`] | text in CSV files, which no spreadsheet takes for a formula |
//! | `closed` | determines whether standard output was open when the process started |

pub mod cell;
mod closed;
mod error;
mod file;
mod folder;
pub mod input;
mod place;
pub mod roles;
pub mod stdout;
mod unfinished;

pub use error::OutputError;
pub use file::FileOutput;
pub use folder::{FolderKind, FolderOutput};
