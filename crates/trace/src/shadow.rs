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

use std::sync::atomic::AtomicU64;

use crate::reservation;

/// Address bits that a shadow table distinguishes: 4 TiB.
#[cfg(not(feature = "small-window"))]
pub const WINDOW_BITS: u32 = 42;
/// Under ThreadSanitizer (`make test-tsan`) a program has less address space than the tables need: 4 GiB.
#[cfg(feature = "small-window")]
pub const WINDOW_BITS: u32 = 32;

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

    /// Zeroes the words of `address..address + length` and frees whole pages of them.
    pub fn forget(&self, address: u64, length: u64) {
        let unit = 1u64 << self.shift;
        let (first, last) = (address, address.saturating_add(length));
        // Up to a page of words is cleared word by word; beyond that, whole pages are dropped.
        let block = unit * 512;
        let inner = first.next_multiple_of(block)..last / block * block;
        if inner.start >= inner.end || last - first > 1 << WINDOW_BITS {
            let mut at = first & !(unit - 1);
            while at < last.min(first.saturating_add(1 << WINDOW_BITS)) {
                self.word(at).store(0, std::sync::atomic::Ordering::Relaxed);
                at += unit;
            }
            return;
        }
        for (from, to) in [(first & !(unit - 1), inner.start), (inner.end, last)] {
            let mut at = from;
            while at < to {
                self.word(at).store(0, std::sync::atomic::Ordering::Relaxed);
                at += unit;
            }
        }
        let start = (inner.start >> self.shift) & self.mask;
        let words = ((inner.end - inner.start) >> self.shift).min(self.mask + 1 - start);
        // SAFETY: the range lies in the reservation; a private anonymous page that is dropped reads as zero again.
        unsafe {
            libc::madvise(
                self.base.add(start as usize).cast(),
                (words * 8) as usize,
                libc::MADV_DONTNEED,
            );
        }
    }

    /// Zeroes the whole table, for example in a forked child.
    pub fn clear(&self) {
        // SAFETY: as in `forget`, for the whole reservation.
        unsafe {
            libc::madvise(
                self.base.cast(),
                ((self.mask + 1) * 8) as usize,
                libc::MADV_DONTNEED,
            );
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
    use std::sync::atomic::Ordering::Relaxed;

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
}
