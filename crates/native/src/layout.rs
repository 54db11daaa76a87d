//! Address layout of the lowest 2 GiB of the address space.
//!
//! Code cache, tables and the program's images are placed there, so that rip-relative operands keep their form, tables
//! have absolute addresses, and a return address is stored by one instruction.

use crate::sys::LARGE_PAGE;

/// Range for position-independent programs and libraries. A program with a fixed address, its heap, and what a program
/// maps at low addresses of its own may lie below; `MAP_32BIT` maps from 1 GiB on.
pub const IMAGES: std::ops::Range<u64> = 0x2a00_0000..JUMPS;

/// Table of code addresses for indirect jumps and calls, indexed by the lowest 16 bits of the program's address.
pub const JUMPS: u64 = 0x67c0_0000;
/// Table of code addresses for returns, indexed in the same way.
pub const RETURNS: u64 = JUMPS + 8 * TABLE_ENTRIES;
/// From either table to that for code which only counts accesses, between bursts.
pub const COUNTING: u64 = 16 * TABLE_ENTRIES;
/// Entries of each table.
pub const TABLE_ENTRIES: u64 = 1 << 16;
/// Address of the pointer to the engine's entry for unlinked direct branches.
pub const VECTOR_EXIT: u64 = RETURNS + COUNTING + 8 * TABLE_ENTRIES;
/// Address of the pointer to the engine's entry for unknown targets of indirect jumps and calls.
pub const VECTOR_JUMP: u64 = VECTOR_EXIT + 8;
/// Address of the pointer to the engine's entry for unknown targets of returns.
pub const VECTOR_RETURN: u64 = VECTOR_EXIT + 16;
/// Address of the pointer to the engine's entry for accesses to record.
pub const VECTOR_RECORD: u64 = VECTOR_EXIT + 24;
/// Address of the pointer to the engine's entry for accesses to record without changing the upper parts of vector
/// registers.
pub const VECTOR_PLAIN: u64 = VECTOR_EXIT + 32;
/// Address of the pointers to the engine's entries for accesses of each [`crate::record::descriptor::Light`] kind.
pub const VECTORS_LIGHT: u64 = VECTOR_EXIT + 40;
/// Address of the pointer to the masks of the bytes written, a bit for each byte of the window, or 0 if none are kept.
pub const MASKS: u64 = VECTOR_EXIT + 0x800;
/// First address of tables and vectors.
pub const TABLES: u64 = JUMPS;
/// Bytes of tables and vectors.
pub const TABLES_BYTES: u64 = VECTOR_EXIT + 0x1000 - TABLES;

/// All translated code: a large page for [`MISSED_JUMP`] and [`MISSED_RETURN`], and two halves that are used
/// alternately.
pub const CODE: std::ops::Range<u64> = 0x6800_0000..0x6800_0000 + LARGE_PAGE + 2 * HALF;
/// Code that jumps through [`VECTOR_JUMP`].
pub const MISSED_JUMP: u64 = CODE.start;
/// Code that jumps through [`VECTOR_RETURN`].
pub const MISSED_RETURN: u64 = CODE.start + 64;
/// Bytes of fragments in a half.
pub const FRAGMENTS: u64 = 60 << 20;
/// Bytes of exits for each byte of fragments: the code that records accesses is there.
pub const EXITS: u64 = 2;
/// Bytes of a half: fragments, then their exits.
pub const HALF: u64 = (1 + EXITS) * FRAGMENTS;

/// Table of the lines' states while accesses are recorded: 512 GiB of reserved addresses.
pub const LINES: u64 = 0x7ec0_0000;
/// Addresses that a recorded program with fixed addresses must leave free: tables, cache and [`LINES`].
pub const TAKEN: std::ops::Range<u64> = TABLES..LINES + (512 << 30);

/// Start of the fragments, and of the exits, of half 0 or 1.
pub const fn half(number: u64) -> (u64, u64) {
    let begin = CODE.start + LARGE_PAGE + number * HALF;
    (begin, begin + FRAGMENTS)
}
