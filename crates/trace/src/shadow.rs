//! Shadow tables: one word for each line or page of the program's memory, found by arithmetic.
//!
//! A table is one large reservation of address space that the kernel backs with zero pages as they are touched. So its
//! memory follows the program's footprint (one 8-byte word for each 64-byte line: 1/8), and a look-up is a shift, a
//! mask and an addition. A hash table scatters neighbouring lines and measured 2 to 5 times slower.
//!
//! Addresses are folded to [`WINDOW_BITS`]; two live addresses that differ only in higher bits share a word. Under
//! QEMU 7.2 a program has less space than the window. Natively, on x86-64, the heap is folded to a place between 1.3
//! and 2.3 TiB, and stacks and mappings to one that ends between 3 and 4 TiB and grows down, so they do not collide
//! while the program maps no more than 680 GiB. The tables themselves lie elsewhere ([`reservation`]).

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::reservation;

/// Address bits that a shadow table distinguishes: 4 TiB.
#[cfg(not(feature = "small-window"))]
pub const WINDOW_BITS: u32 = 42;
/// Under ThreadSanitizer (`make test-tsan`) a program has less address space than the tables need: 4 GiB.
#[cfg(feature = "small-window")]
pub const WINDOW_BITS: u32 = 32;

/// Words in a page of a table.
const PAGE_WORDS: u64 = 4096 / 8;

/// One zero-initialised `AtomicU64` for each `1 << shift` bytes of the window.
#[derive(Clone, Copy)]
pub struct Shadow {
    base: *mut AtomicU64,
    shift: u32,
    mask: u64,
}

// SAFETY: the table is an array of atomics that is never unmapped; every access goes through them.
unsafe impl Send for Shadow {}
// SAFETY: as above.
unsafe impl Sync for Shadow {}

/// A [`Shadow`] with units of a constant `1 << SHIFT` bytes: the shortest code, for the hot path.
#[derive(Clone, Copy)]
pub struct Fixed<const SHIFT: u32> {
    base: *mut AtomicU64,
}

// SAFETY: as for `Shadow`.
unsafe impl<const SHIFT: u32> Send for Fixed<SHIFT> {}
// SAFETY: as above.
unsafe impl<const SHIFT: u32> Sync for Fixed<SHIFT> {}

impl<const SHIFT: u32> Fixed<SHIFT> {
    /// The word of the unit that holds `address`.
    #[inline(always)]
    #[must_use]
    pub fn word(&self, address: u64) -> &AtomicU64 {
        let index = address << (64 - WINDOW_BITS) >> (64 - WINDOW_BITS + SHIFT);
        // SAFETY: `index` is below `1 << (WINDOW_BITS - SHIFT)`, and `Shadow::fixed` checked that there are as many
        // words.
        unsafe { &*self.base.add(index as usize) }
    }

    /// The words of `count` units from the one that holds `address` on, which do not cross the end of the window.
    #[inline(always)]
    #[must_use]
    pub fn words(&self, address: u64, count: usize) -> &[AtomicU64] {
        let window = 1 << WINDOW_BITS;
        debug_assert!((address & (window - 1)) + ((count as u64) << SHIFT) <= window);
        // SAFETY: the first is a word of the table, and as the caller promises, so are those that follow.
        unsafe { std::slice::from_raw_parts(self.word(address), count) }
    }
}

impl Shadow {
    /// The table with units of `1 << SHIFT` bytes; `None` if it has too few words. Where `SHIFT` exceeds the table's
    /// own, the words are not those of [`Shadow::word`].
    #[must_use]
    pub fn fixed<const SHIFT: u32>(&self) -> Option<Fixed<SHIFT>> {
        (self.shift <= SHIFT).then_some(Fixed { base: self.base })
    }

    /// Reserves a table with a word for each `1 << shift` bytes.
    ///
    /// # Errors
    /// The system's error when the address space cannot be reserved (for example under `ulimit -v`).
    pub fn reserve(shift: u32) -> std::io::Result<Self> {
        let words = 1u64 << (WINDOW_BITS - shift);
        Ok(Self {
            base: reservation::reserve(words, None)?,
            shift,
            mask: words - 1,
        })
    }

    /// Reserves a table behind `before` bytes of memory of the caller's, a multiple of the page size; returns the
    /// address of that memory.
    ///
    /// # Errors
    /// As [`Shadow::reserve`].
    pub fn reserve_behind(before: usize, shift: u32) -> std::io::Result<u64> {
        let words = 1u64 << (WINDOW_BITS - shift);
        let base = reservation::reserve_behind(before, words, None)?;
        Ok(base as u64 - before as u64)
    }

    /// The table at an address, with units of `1 << shift` bytes.
    ///
    /// # Safety
    /// [`Shadow::reserve_behind`] made it, with this `shift`.
    #[must_use]
    pub unsafe fn at(base: *mut AtomicU64, shift: u32) -> Self {
        let mask = (1 << (WINDOW_BITS - shift)) - 1;
        Self { base, shift, mask }
    }

    /// Address of the first word.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.base as u64
    }

    /// log2 of the bytes that share a word.
    #[inline(always)]
    #[must_use]
    pub fn shift(&self) -> u32 {
        self.shift
    }

    /// The word of the line or page that holds `address`.
    #[inline(always)]
    #[must_use]
    pub fn word(&self, address: u64) -> &AtomicU64 {
        let index = (address >> self.shift) & self.mask;
        // SAFETY: `index` is masked to the reservation, which lives as long as the process.
        unsafe { &*self.base.add(index as usize) }
    }

    /// Zeroes the words of `address..address + length`. Whole pages of them are given back by one call, or by two if
    /// the range crosses the end of the window: the cost does not depend on the range's size. Of the words at the
    /// edges only those that are not zero are written, so that a page of the table that takes no memory takes none
    /// afterwards.
    pub fn forget(&self, address: u64, length: u64) {
        let Some(last) = length.checked_sub(1) else {
            return;
        };
        let (first, last) = (address, address.saturating_add(last));
        let (first, last) = (first >> self.shift, last >> self.shift);
        let (count, words) = (last - first + 1, self.mask + 1);
        if count >= words {
            return self.clear();
        }
        let start = first & self.mask;
        let end = start + count;
        self.zero(start..end.min(words));
        if end > words {
            self.zero(0..end - words);
        }
    }

    /// Zeroes the words with these numbers.
    fn zero(&self, words: Range<u64>) {
        let whole = words.start.next_multiple_of(PAGE_WORDS)..words.end / PAGE_WORDS * PAGE_WORDS;
        let before = words.start..whole.start.min(words.end);
        let after = whole.end.max(whole.start)..words.end;
        for index in before.chain(after) {
            // SAFETY: the caller's words are in the table.
            let word = unsafe { &*self.base.add(index as usize) };
            if word.load(Relaxed) != 0 {
                word.store(0, Relaxed);
            }
        }
        if whole.start < whole.end {
            self.give_back(whole);
        }
    }

    /// Zeroes the whole table, for example in a forked child.
    pub fn clear(&self) {
        self.give_back(0..self.mask + 1);
    }

    /// Lets a forked child begin with an empty table, for one behind other memory: costs a mapping more.
    pub fn wipe_on_fork(&self) {
        self.advise(libc::MADV_WIPEONFORK);
    }

    /// Lets a forked child begin with a copy of the table.
    pub fn keep_on_fork(&self) {
        self.advise(libc::MADV_KEEPONFORK);
    }

    fn advise(&self, of_forks: libc::c_int) {
        let bytes = ((self.mask + 1) * 8) as usize;
        // SAFETY: the range is the reservation; the advice does not change its content.
        unsafe { libc::madvise(self.base.cast(), bytes, of_forks) };
    }

    /// Frees the memory of words in whole pages: they read as zero again.
    fn give_back(&self, words: Range<u64>) {
        /// The same for memory that has been locked, since Linux 5.18.
        const MADV_DONTNEED_LOCKED: i32 = 24;
        for advice in [libc::MADV_DONTNEED, MADV_DONTNEED_LOCKED] {
            // SAFETY: the range lies in the reservation; a private anonymous page that is dropped reads as zero again.
            let status = unsafe {
                libc::madvise(
                    self.base.add(words.start as usize).cast(),
                    ((words.end - words.start) * 8) as usize,
                    advice,
                )
            };
            if status == 0 {
                return;
            }
        }
    }
}

/// Prefetches a word into the cache.
#[inline(always)]
pub(crate) fn prefetch(word: &AtomicU64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has SSE, and a prefetch has no visible effect.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(word).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = word;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_per_line_and_start_at_zero() {
        let lines = Shadow::reserve(6).unwrap();
        assert_eq!(lines.word(0x4000_1040).load(Relaxed), 0);
        lines.word(0x4000_1040).store(7, Relaxed);
        assert_eq!(lines.word(0x4000_107f).load(Relaxed), 7);
        assert_eq!(lines.word(0x4000_1080).load(Relaxed), 0);
    }

    #[test]
    fn a_constant_unit_finds_the_same_words() {
        let lines = Shadow::reserve(6).unwrap();
        assert!(lines.fixed::<5>().is_none());
        let fixed = lines.fixed::<6>().unwrap();
        for address in [0, 63, 64, 0x4000_1040, (1 << WINDOW_BITS) - 1, u64::MAX] {
            assert!(std::ptr::eq(lines.word(address), fixed.word(address)));
        }
    }

    #[test]
    fn a_table_lies_behind_the_callers_memory() {
        let before = Shadow::reserve_behind(8192, 12).unwrap();
        // SAFETY: made above.
        let table = unsafe { Shadow::at((before + 8192) as *mut AtomicU64, 12) };
        let last = (before + 8184) as *mut u64;
        // SAFETY: the caller's memory.
        unsafe { last.write(7) };
        table.word(0).store(9, Relaxed);
        table.clear();
        // SAFETY: as above.
        let kept = unsafe { last.read() };
        assert_eq!((kept, table.word(0).load(Relaxed)), (7, 0));
    }

    #[test]
    fn a_forked_child_finds_the_callers_memory_and_an_empty_table() {
        let before = Shadow::reserve_behind(8192, 12).unwrap();
        // SAFETY: made above.
        let table = unsafe { Shadow::at((before + 8192) as *mut AtomicU64, 12) };
        table.wipe_on_fork();
        let last = (before + 8184) as *mut u64;
        // SAFETY: the caller's memory.
        unsafe { last.write(7) };
        table.word(0).store(9, Relaxed);
        // SAFETY: the child reads two words and ends.
        let status = unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::_exit((last.read() << 4 | table.word(0).load(Relaxed)) as i32);
            }
            let mut status = 0;
            libc::waitpid(child, &raw mut status, 0);
            status
        };
        assert_eq!(libc::WEXITSTATUS(status), 7 << 4);
        assert_eq!(table.word(0).load(Relaxed), 9);
    }

    #[test]
    fn forgetting_clears_the_range_and_nothing_else() {
        let lines = Shadow::reserve(6).unwrap();
        let (start, length) = (0x7000_0040u64, 0x50_0000u64);
        for at in (start - 64..start + length + 64).step_by(64) {
            lines.word(at).store(1, Relaxed);
        }
        lines.forget(start, length);
        for at in (start..start + length).step_by(64) {
            assert_eq!(lines.word(at).load(Relaxed), 0, "{at:#x}");
        }
        assert_eq!(lines.word(start - 64).load(Relaxed), 1);
        assert_eq!(lines.word(start + length).load(Relaxed), 1);
    }

    /// Resident bytes of a table.
    fn resident(table: &Shadow) -> u64 {
        let start = table.base as u64;
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        crate::memory::of_tables(&smaps, &[(start, start + (table.mask + 1) * 8)]).unwrap()
    }

    #[test]
    fn forgetting_takes_no_memory_whatever_the_size() {
        const TIB: u64 = 1 << 40;
        let tables = [2, 6, 12].map(|shift| Shadow::reserve(shift).unwrap());
        let ranges = [1, 3, 4, 8, 64].map(|size| (0x7000_0000_1040, size * TIB + 0x12_3440));
        for (address, length) in ranges
            .into_iter()
            .chain([(0, u64::MAX), (5 * TIB - 64, 4096)])
        {
            for table in &tables {
                table.forget(address, length);
                assert_eq!(resident(table), 0, "{length:#x} bytes at {address:#x}");
            }
        }
    }

    #[test]
    fn a_range_beyond_the_end_of_the_window_is_forgotten_at_both_ends() {
        let window = 1u64 << WINDOW_BITS;
        let lines = Shadow::reserve(6).unwrap();
        let near = |address: u64| [0, 64, 1 << 15, 1 << 16].map(|more| address + more);
        let all: Vec<u64> = near(0)
            .into_iter()
            .chain(near(window - (1 << 17)))
            .collect();
        let mark = || all.iter().for_each(|&at| lines.word(at).store(1, Relaxed));
        let left = || {
            let kept = |at: &&u64| lines.word(**at).load(Relaxed) != 0;
            all.iter().filter(kept).copied().collect::<Vec<u64>>()
        };
        mark();
        // From the second mark before the end to the third one after it.
        lines.forget(window - (1 << 17) + 64, (1 << 17) + (1 << 15));
        assert_eq!(left(), [1 << 16, window - (1 << 17)]);
        mark();
        lines.forget(3 * window + 64, window - 64);
        assert_eq!(left(), [0]);
        mark();
        lines.forget(64, window);
        assert_eq!(left(), []);
        mark();
        lines.forget(64, 0);
        assert_eq!(left().len(), all.len());
    }
}
