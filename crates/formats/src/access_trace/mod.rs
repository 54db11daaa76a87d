//! The access trace on disk: one file for each process image, in the profile's folder `accesses/`.
//!
//! A file is a row of frames, each written at once and with a checksum of its own; a frame holds one message of
//! `numaloc-access-trace`, the columns of blocks compressed with zstd. A file that ends early (full disk, killed recorder) is good up to
//! its last whole frame. Format: `docs/formats/access-trace.md`.
//!
//! [`Writer`] takes the messages of one process, [`AccessTrace`] reads a file, [`Order`] joins the threads of several in the order of
//! their clocks.

mod order;
mod read;
mod write;

use std::path::{Path, PathBuf};

pub use numaloc_access_trace::message::CacheSize;
pub use order::Order;
pub use read::{AccessTrace, Stream, StreamEvents, Tally};
pub use write::{Limit, Writer};

use crate::error::FormatError;

/// First bytes of a frame.
const MAGIC: [u8; 4] = *b"NAT1";
/// Bytes before a frame's message: magic, length, checksum.
const FRAME_HEAD: usize = 12;
/// Longest message accepted; the writer's are a third of it at most.
const LONGEST: usize = 1 << 20;
/// The folder in a profile.
pub const FOLDER: &str = "accesses";
/// How files end.
pub const EXTENSION: &str = "trace";

/// The traces in a profile's folder, in the order of its process images; empty where none were recorded.
///
/// # Errors
/// [`FormatError`] if the folder cannot be read, or a trace is not what the profile's `meta.json` says.
pub fn files(profile: &Path) -> Result<Vec<PathBuf>, FormatError> {
    let folder = profile.join(FOLDER);
    let mut found: Vec<(u64, PathBuf)> = Vec::new();
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(FormatError::io("read", &folder, error)),
    };
    for entry in entries {
        let path = entry
            .map_err(|error| FormatError::io("read", &folder, error))?
            .path();
        let number = path
            .file_stem()
            .and_then(|stem| stem.to_str()?.parse().ok());
        if path.extension().is_some_and(|e| e == EXTENSION)
            && let Some(number) = number
        {
            found.push((number, path));
        }
    }
    found.sort();
    for (_, path) in &found {
        if let Some(name) = path.file_name().and_then(|name| name.to_str()) {
            crate::profile::verify_trace(profile, &format!("{FOLDER}/{name}"))?;
        }
    }
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// Whether we write a file of this name, relative to a profile's folder.
pub(crate) fn owns(name: &Path) -> bool {
    match name.strip_prefix(FOLDER) {
        Ok(trace) if trace.as_os_str().is_empty() => true,
        Ok(trace) => {
            let number = trace
                .file_stem()
                .and_then(|stem| stem.to_str()?.parse::<u64>().ok());
            number.is_some() && trace.extension().is_some_and(|e| e == EXTENSION)
        }
        Err(_) => false,
    }
}

/// Links (or else copies) traces into a profile's folder under the numbers of their process images; their names
/// there.
pub(crate) fn put_into(
    profile: &Path,
    traces: &[(u64, PathBuf)],
) -> Result<Vec<String>, FormatError> {
    if traces.is_empty() {
        return Ok(Vec::new());
    }
    let folder = profile.join(FOLDER);
    std::fs::create_dir(&folder).map_err(|error| FormatError::io("create", &folder, error))?;
    let mut names = Vec::new();
    for (image, from) in traces {
        let name = format!("{image}.{EXTENSION}");
        let to = folder.join(&name);
        names.push(format!("{FOLDER}/{name}"));
        std::fs::hard_link(from, &to)
            .or_else(|_| std::fs::copy(from, &to).map(|_| ()))
            .map_err(|error| FormatError::io("write", &to, error))?;
    }
    Ok(names)
}

#[cfg(test)]
mod tests;
