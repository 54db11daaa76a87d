//! Places in the program's code: which instruction made an access.
//!
//! Frontends set the place of an access before they record it ([`crate::ThreadTracer::set_place`]): an address in the
//! program's code, or a number that the frontend later resolves to one, which costs less where it is rarely needed. A
//! reader's event needs the place of the writer's store as well: [`Stores`] keeps it for the lines stored to last, and
//! for the pages, so that a sweep over more memory than it has lines for is still known.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::shadow::{Shadow, WINDOW_BITS};

/// log2 of the number of lines whose last store is kept: with one word of 8 bytes each, 2 MiB.
const KEPT: u32 = if WINDOW_BITS > 40 { 18 } else { 8 };
/// log2 of the lines of a page, in whose first line a store is kept for the page: 4 KiB, if lines have the usual size.
const PAGE_LINES: u32 = 6;
/// log2 of the number of pages whose last such store is kept: 512 KiB.
const PAGES_KEPT: u32 = KEPT - 2;
/// Bits of a word that hold the place; the others hold a check of line and writer.
const PLACE_BITS: u32 = 48;
const PLACE: u64 = (1 << PLACE_BITS) - 1;

/// A table of 2^`KEPT` words, which lines or pages share.
#[derive(Clone, Copy)]
struct Kept<const KEPT: u32>(Shadow);

impl<const KEPT: u32> Kept<KEPT> {
    const SHIFT: u32 = WINDOW_BITS - KEPT;

    fn reserve() -> std::io::Result<Self> {
        Shadow::reserve(Self::SHIFT).map(Self)
    }

    /// The word of a unit. Neighbours have neighbouring words; units at the same offset in memory of different threads,
    /// which begins at multiples of a large power of two, have different ones.
    #[inline(always)]
    fn word(&self, unit: u64) -> &AtomicU64 {
        let index = unit.wrapping_add((unit >> KEPT).wrapping_mul(0x9e37_79b1));
        self.0.word(index << Self::SHIFT)
    }

    /// Distinguishes the units and writers that share a word, except for one of 2^16.
    #[inline(always)]
    fn check(unit: u64, writer: u32) -> u64 {
        (unit >> KEPT ^ u64::from(writer).wrapping_mul(0x9e37)) & 0xffff
    }

    #[inline(always)]
    fn keep(&self, unit: u64, writer: u32, place: u64) {
        let word = Self::check(unit, writer) << PLACE_BITS | place & PLACE;
        self.word(unit).store(word, Relaxed);
    }

    /// Replaces places for which `renamed` has another one.
    fn rename(&self, renamed: &mut impl FnMut(u64) -> Option<u64>) {
        for index in 0..1 << KEPT {
            let word = self.0.word(index << Self::SHIFT);
            let kept = word.load(Relaxed);
            if kept & PLACE != 0
                && let Some(place) = renamed(kept & PLACE)
            {
                // A store that another thread keeps meanwhile is newer.
                let _ =
                    word.compare_exchange(kept, kept & !PLACE | place & PLACE, Relaxed, Relaxed);
            }
        }
    }

    fn of(&self, unit: u64, writer: u32) -> u64 {
        let word = self.word(unit).load(Relaxed);
        match word >> PLACE_BITS == Self::check(unit, writer) {
            true => word & PLACE,
            false => 0,
        }
    }
}

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
pub(crate) struct Stores {
    lines: Kept<KEPT>,
    pages: Kept<PAGES_KEPT>,
}

impl Stores {
    /// Reserves empty tables.
    ///
    /// # Errors
    /// The system's error when address space cannot be reserved.
    pub fn reserve() -> std::io::Result<Self> {
        Ok(Self {
            lines: Kept::reserve()?,
            pages: Kept::reserve()?,
        })
    }

    /// Keeps the place of a store to `line` by the thread with writer id `writer`.
    #[inline(always)]
    pub fn keep(&self, line: u64, writer: u32, place: u64) {
        self.lines.keep(line, writer, place);
        if line.trailing_zeros() >= PAGE_LINES {
            self.pages.keep(line >> PAGE_LINES, writer, place);
        }
    }

    /// The place of the last store to `line`, if it was made by `writer` and is still known; otherwise of the last one
    /// to the first line of its page; otherwise 0.
    pub fn of(&self, line: u64, writer: u32) -> u64 {
        match self.lines.of(line, writer) {
            0 => self.pages.of(line >> PAGE_LINES, writer),
            place => place,
        }
    }

    /// Replaces places for which `renamed` has another one.
    pub fn rename(&self, mut renamed: impl FnMut(u64) -> Option<u64>) {
        self.lines.rename(&mut renamed);
        self.pages.rename(&mut renamed);
    }

    /// Forgets all places.
    pub fn clear(&self) {
        self.lines.0.clear();
        self.pages.0.clear();
    }
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
        let word = |line| std::ptr::from_ref(stores.lines.word(line));
        let lines = 78..(8 << KEPT);
        let other = lines.into_iter().find(|&other| word(other) == word(77));
        let other = other.unwrap();
        stores.keep(other, 3, 0x1000);
        assert_eq!((stores.of(77, 3), stores.of(other, 3)), (0, 0x1000));
        stores.keep(77, 3, 5);
        stores.clear();
        assert_eq!(stores.of(77, 3), 0);
    }

    #[test]
    fn a_sweep_over_more_lines_than_the_table_has_is_known_by_its_pages() {
        let stores = Stores::reserve().unwrap();
        for line in 0..8 << KEPT {
            stores.keep(line, 3, 0x1000);
        }
        let last = (8 << KEPT) - 1;
        for line in [0, 1, 77, last] {
            assert_eq!(stores.of(line, 3), 0x1000, "{line}");
            assert_eq!(stores.of(line, 4), 0, "{line}");
        }
        stores.rename(|place| (place == 0x1000).then_some(0x1234));
        assert_eq!((stores.of(1, 3), stores.of(last, 3)), (0x1234, 0x1234));
        // A line of its own is exact.
        stores.keep(77, 3, 0x2000);
        assert_eq!((stores.of(77, 3), stores.of(78, 3)), (0x2000, 0x1234));
        stores.clear();
        assert_eq!(stores.of(1, 3), 0);
    }
}
