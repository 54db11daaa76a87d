//! What the engine remembers of a cache line: one word.
//!
//! | bits | meaning |
//! |---|---|
//! | 0..20 | the last writer (thread number + 1), 0 when nobody has written, [`CROSS_PROCESS`] for a line of the common table |
//! | 20 | *sync*: an atomic instruction or a futex used the line; its clock is kept, every access takes the slow path |
//! | 21 | *extended*: reader bits beyond the word are in use (see [`crate::readers`]) |
//! | 22 | *tracked*: threads have communicated through the line, the bytes written are kept ([`crate::sharing`]) |
//! | 23 | *full*: tracked, and all its bytes were written since; nothing is kept of them elsewhere |
//! | 24..64 | readers since that write, one bit for each of the first [`READERS`] reader numbers |
//!
//! An event of the `write_read` layer is the first read by a thread since the last write by another thread
//! (DeLoc II-B2: "a write then a read by different threads", each reader of a written value counted once). The reader
//! bits make "once" exact, and make the common case one load and one test.

/// log2 of the usual line size. Lines of another size never take the fast path.
pub const FAST_SHIFT: u32 = 6;
/// Reader numbers that fit the word.
pub const READERS: u32 = 40;
/// Highest writer id.
pub const MAX_WRITER: u32 = 0xf_fffe;
/// In place of a writer: the line lies in memory that other processes may map, and what is known of it is in their common table
/// ([`crate::cross_process`]). Never anybody's own, and without reader bits: no access to it is a fast one.
pub const CROSS_PROCESS: u64 = 0xf_ffff;

const WRITER: u64 = 0xf_ffff;
/// The line is used for synchronisation.
pub const SYNC: u64 = 1 << 20;
/// Readers beyond the word exist.
pub const EXTENDED: u64 = 1 << 21;
/// The bytes written are kept.
pub const TRACKED: u64 = 1 << 22;
/// All bytes of a tracked line were written since its writer took it.
pub const FULL: u64 = 1 << 23;
/// What a word says of the bytes written.
pub const BYTES: u64 = TRACKED | FULL;

/// The bits of all reader numbers that fit the word.
pub const ALL_READERS: u64 = !0 << 24;

/// Whether the bytes written are kept beside the word: of a tracked line of which not all were written.
#[inline(always)]
#[must_use]
pub fn keeps_bytes(word: u64) -> bool {
    word & BYTES == TRACKED
}

/// The writer id in a word, 0 for none.
#[inline(always)]
#[must_use]
pub fn writer(word: u64) -> u32 {
    (word & WRITER) as u32
}

/// Whether the line is in the common table.
#[inline(always)]
#[must_use]
pub fn is_cross_process(word: u64) -> bool {
    word & WRITER == CROSS_PROCESS
}

/// The bit of reader `number`, 0 when it does not fit the word.
#[must_use]
pub fn reader_bit(number: u32) -> u64 {
    if number < READERS {
        1 << (24 + number)
    } else {
        0
    }
}

/// The word after a write by `writer_id`, whose own reader bit counts as read.
#[must_use]
pub fn owned(writer_id: u32, reader_bit: u64) -> u64 {
    u64::from(writer_id) | reader_bit
}
