//! Reads and writes access traces: one file for each process image, in the profile's folder `accesses/`.
//!
//! A file is a sequence of frames, each written at once and with its own checksum. A frame holds one message of
//! `numaloc-access-trace`; the columns of blocks are compressed with zstd. A truncated file (full disk, killed
//! recorder) is valid up to its last complete frame. Format: `docs/formats/access-trace.md`.
//!
//! [`Writer`] takes the messages of one process, [`AccessTrace`] reads a file, [`Order`] merges the threads of several
//! traces in the order of their clocks.

mod order;
mod read;
mod write;

pub use numaloc_access_trace::message::{CacheSize, SharedPages};
pub use numaloc_access_trace::windows::Windows;
pub use order::Order;
pub use read::{AccessTrace, Stream, StreamEvents, Tally};
pub use write::{Limit, Writer};

/// File name extension.
pub const EXTENSION: &str = "trace";
/// First bytes of a frame.
const MAGIC: [u8; 4] = *b"NAT1";
/// Size of a frame's header in bytes: magic, length, checksum.
const FRAME_HEAD: usize = 12;
/// Longest message accepted, in bytes; the writer's are at most a third of it.
const MAX_MESSAGE_BYTES: usize = 1 << 20;
#[cfg(test)]
mod tests;
