//! Places in the program's code: which instruction made an access.
//!
//! Frontends set the place of an access before they record it ([`crate::ThreadTracer::set_place`]): an address in the
//! program's code, or a number that the frontend later resolves to one, which costs less where it is rarely needed. A
//! reader's event needs the place of the writer's store as well: [`Stores`] keeps it for the lines stored to last.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::shadow::{Shadow, WINDOW_BITS};

/// log2 of the number of lines whose last store is kept: with one word of 8 bytes each, 2 MiB.
const KEPT: u32 = if WINDOW_BITS > 40 { 18 } else { 8 };
/// Bits of a word that hold the place; the others hold a check of line and writer.
const PLACE_BITS: u32 = 48;
const SHIFT: u32 = WINDOW_BITS - KEPT;

static RESOLVER: OnceLock<fn(u64) -> u64> = OnceLock::new();

/// Sets the function that turns places into addresses of the program's code; 0 for unknown ones.
pub fn set_resolver(resolver: fn(u64) -> u64) {
    let _ = RESOLVER.set(resolver);
}

/// The address of the program's code at `place`; 0 if unknown.
pub(crate) fn resolve(place: u64) -> u64 {
    match RESOLVER.get() {
        Some(resolver) if place != 0 => resolver(place),
        _ => place,
    }
}

/// The places of the stores by which threads last took lines. Lines share words: the line stored to last has it.
#[derive(Clone, Copy)]
pub(crate) struct Stores(Shadow);

impl Stores {
    /// Reserves an empty table.
    ///
    /// # Errors
    /// The system's error when address space cannot be reserved.
    pub fn reserve() -> std::io::Result<Self> {
        Shadow::reserve(SHIFT).map(Self)
    }

    /// The word of a line. Neighbours have neighbouring words; lines at the same offset in memory of different threads,
    /// which begins at multiples of a large power of two, have different ones.
    #[inline(always)]
    fn word(&self, line: u64) -> &AtomicU64 {
        let index = line.wrapping_add((line >> KEPT).wrapping_mul(0x9e37_79b1));
        self.0.word(index << SHIFT)
    }

    /// Keeps the place of a store to `line` by the thread with writer id `writer`.
    #[inline(always)]
    pub fn keep(&self, line: u64, writer: u32, place: u64) {
        let word = check(line, writer) << PLACE_BITS | place & ((1 << PLACE_BITS) - 1);
        self.word(line).store(word, Relaxed);
    }

    /// The place of the last store to `line`, if it was made by `writer` and is still known; otherwise 0.
    pub fn of(&self, line: u64, writer: u32) -> u64 {
        let word = self.word(line).load(Relaxed);
        match word >> PLACE_BITS == check(line, writer) {
            true => word & ((1 << PLACE_BITS) - 1),
            false => 0,
        }
    }

    /// Forgets all places.
    pub fn clear(&self) {
        self.0.clear();
    }
}

/// Distinguishes the lines and writers that share a word, except for one of 2^16.
#[inline(always)]
fn check(line: u64, writer: u32) -> u64 {
    (line >> KEPT ^ u64::from(writer).wrapping_mul(0x9e37)) & 0xffff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_known_until_another_one_takes_its_word() {
        let stores = Stores::reserve().unwrap();
        assert_eq!(stores.of(77, 3), 0);
        stores.keep(77, 3, 0x5555_0000_1234);
        assert_eq!(stores.of(77, 3), 0x5555_0000_1234);
        assert_eq!((stores.of(77, 4), stores.of(78, 3)), (0, 0));
        // Another line with the same word.
        let word = |line| std::ptr::from_ref(stores.word(line));
        let lines = 78..(8 << KEPT);
        let other = lines.into_iter().find(|&other| word(other) == word(77));
        let other = other.unwrap();
        stores.keep(other, 3, 0x1000);
        assert_eq!((stores.of(77, 3), stores.of(other, 3)), (0, 0x1000));
        stores.keep(77, 3, 5);
        stores.clear();
        assert_eq!(stores.of(77, 3), 0);
    }
}
