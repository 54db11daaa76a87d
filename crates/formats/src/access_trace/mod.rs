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

pub use numaloc_access_trace::message::CacheSize;
pub use order::Order;
pub use read::{AccessTrace, Stream, StreamEvents, Tally};
pub use write::{Limit, Writer};

/// How files end.
pub const EXTENSION: &str = "trace";
/// First bytes of a frame.
const MAGIC: [u8; 4] = *b"NAT1";
/// Bytes before a frame's message: magic, length, checksum.
const FRAME_HEAD: usize = 12;
/// Longest message accepted; the writer's are a third of it at most.
const LONGEST: usize = 1 << 20;
#[cfg(test)]
mod tests;
