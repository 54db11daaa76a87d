//! The state of a cache line: one word in the line table.
//!
//! | bits | meaning |
//! |---|---|
//! | 0..20 | the last writer (thread number + 1), 0 before the first write, [`CROSS_PROCESS`] for a line of the cross-process table |
//! | 20 | *sync*: an atomic instruction or a futex used the line; it carries clocks, and every access takes the slow path, but loads by its last writer while that has all its clocks |
//! | 21 | *extended*: reader bits beyond the word are in use (see [`crate::readers`]) |
//! | 22 | *tracked*: threads have communicated through the line; the bytes written are recorded ([`crate::sharing`]) |
//! | 23 | *full*: tracked, and every byte was written in this tenure, or which is unknown: no mask is needed |
//! | 24..64 | readers since the last write, one bit for each of the first [`READERS`] reader numbers; of a *sync* line, whose readers are beyond the word, only the last writer while it has all clocks |
//!
//! An event of the `write_read` layer is the first read by a thread since the last write by another thread (DeLoc
//! II-B2: "a write then a read by different threads", each reader of a written value counted once). The reader bits
//! make "once" exact and reduce the usual access to one load and one test.

/// log2 of the usual line size. Lines of another size never take the fast path.
pub const FAST_SHIFT: u32 = 6;
/// Number of reader numbers that have a bit in the word.
pub const READERS: u32 = 40;
/// Highest writer id in use.
pub const MAX_WRITER: u32 = 0xf_fffe;
/// Writer field of a line that other processes may map: its state is in the table shared by the processes
/// ([`crate::cross_process`]). Equals no writer id and has no reader bits, so accesses to such a line never take the
/// fast path.
pub const CROSS_PROCESS: u64 = 0xf_ffff;

const WRITER: u64 = 0xf_ffff;
/// Flag: the line is used for synchronisation.
pub const SYNC: u64 = 1 << 20;
/// Flag: the line has reader bits beyond the word.
pub const EXTENDED: u64 = 1 << 21;
/// Flag: the bytes written are recorded.
pub const TRACKED: u64 = 1 << 22;
/// Flag: all bytes of a tracked line were written in its present tenure, or which of them is unknown.
pub const FULL: u64 = 1 << 23;
/// The flags about the bytes written.
pub const BYTES: u64 = TRACKED | FULL;

/// The bits of all reader numbers that fit the word.
pub const ALL_READERS: u64 = !0 << 24;

/// The flags that a reader adds to a line with this `word`, whose communication is recorded from now on. The bytes
/// written before are unknown until the next tenure, so all count as written.
#[inline(always)]
#[must_use]
pub fn tracked(word: u64) -> u64 {
    match word & TRACKED {
        0 => BYTES,
        _ => TRACKED,
    }
}

/// Whether a mask of the bytes written is kept for the line: it is tracked but not full.
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

/// Whether the state of the line is in the cross-process table.
#[inline(always)]
#[must_use]
pub fn is_cross_process(word: u64) -> bool {
    word & WRITER == CROSS_PROCESS
}

/// The word's bit for reader `number`; 0 when `number` has none.
#[must_use]
pub const fn reader_bit(number: u32) -> u64 {
    if number < READERS {
        1 << (24 + number)
    } else {
        0
    }
}

/// The word after a write by `writer_id`. The writer counts as a reader: its `reader_bit` is set.
#[inline(always)]
#[must_use]
pub const fn owned(writer_id: u32, reader_bit: u64) -> u64 {
    writer_id as u64 | reader_bit
}

/// The word after a write by the first thread of a process.
pub const FIRST_OWNED: u64 = owned(1, reader_bit(0));
/// Word of a line used for synchronisation that the process's first thread has written last.
pub const FIRST_SYNC: u64 = 1 | SYNC;
