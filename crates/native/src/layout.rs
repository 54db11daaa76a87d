//! Address layout of the lowest 2 GiB of the address space.
//!
//! Code cache, tables and the program's images are placed there, so that rip-relative operands keep their form, tables
//! have absolute addresses, and a return address is pushed by one instruction.

/// Range for position-independent programs and libraries; a program with a fixed address may lie below.
pub const IMAGES: std::ops::Range<u64> = 0x1000_0000..TABLE;

/// Table of code addresses for indirect branches, indexed by the lowest 16 bits of the program's address.
pub const TABLE: u64 = 0x6000_0000;
/// Entries of [`TABLE`].
pub const TABLE_ENTRIES: u64 = 1 << 16;
/// Address of the pointer to the engine's entry for unlinked direct branches.
pub const VECTOR_EXIT: u64 = TABLE + 8 * TABLE_ENTRIES;
/// Address of the pointer to the engine's entry for unknown targets of indirect branches.
pub const VECTOR_MISS: u64 = VECTOR_EXIT + 8;
/// Bytes of table and vectors.
pub const TABLE_BYTES: u64 = 8 * TABLE_ENTRIES + 0x1000;

/// All translated code: a page for [`MISS`], and two halves that are used alternately.
pub const CODE: std::ops::Range<u64> = 0x6400_0000..0x6400_0000 + 0x1_0000 + 4 * AREA;
/// Code that jumps through [`VECTOR_MISS`].
pub const MISS: u64 = CODE.start;
/// Size of an area in bytes: each half has one for fragments and one for their exits.
pub const AREA: u64 = 32 << 20;

/// Start of the fragments, and of the exits, of half 0 or 1.
pub const fn half(number: u64) -> (u64, u64) {
    let begin = CODE.start + 0x1_0000 + number * 2 * AREA;
    (begin, begin + AREA)
}
