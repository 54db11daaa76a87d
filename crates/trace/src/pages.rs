//! Per-thread page counters: a counter pair for each 4 KiB page, in blocks of 512 pages.
//!
//! A block (2 MiB of the program's memory) costs 4 KiB for each thread that touches it: 1/512 of the memory touched, for
//! each thread. The 64 blocks used last are found without a search, so that the common case is an addition.

use std::collections::HashMap;

/// log2 of the page size that is counted; larger pages are sums of these.
pub const PAGE_SHIFT: u32 = 12;
const BLOCK_SHIFT: u32 = 9;
const BLOCK: usize = 1 << BLOCK_SHIFT;
const RECENT: usize = 64;

/// Reads in the low half, writes in the high half.
type Block = [u64; BLOCK];

/// What one read adds to a counter.
pub const READ: u64 = 1;
/// What one write adds to a counter.
pub const WRITE: u64 = 1 << 32;

/// The counters of one thread.
pub struct PageCounters {
    /// Block number and the block, by the low bits of the block number.
    recent: [(u64, *mut Block); RECENT],
    blocks: HashMap<u64, Box<std::cell::UnsafeCell<Block>>>,
}

impl PageCounters {
    /// All counts are zero.
    #[must_use]
    pub fn new() -> Self {
        Self {
            recent: [(u64::MAX, std::ptr::null_mut()); RECENT],
            blocks: HashMap::new(),
        }
    }

    /// Adds to the counter of `page`; returns what it was.
    ///
    /// The halves hold 2^32 - 1 each: [`PageCounters::take`] must be called before that many accesses.
    #[inline(always)]
    pub fn add(&mut self, page: u64, amount: u64) -> u64 {
        let number = page >> BLOCK_SHIFT;
        let slot = (number as usize) % RECENT;
        if self.recent[slot].0 != number {
            self.find(number);
        }
        // SAFETY: `find` left the block's address here; blocks are boxed and live as long as `self`, and only `&mut self`
        // reaches them. The index is masked to the block.
        let counter = unsafe { &mut (*self.recent[slot].1)[page as usize & (BLOCK - 1)] };
        let before = *counter;
        *counter = before.wrapping_add(amount);
        before
    }

    /// The counter of `page`, if its block is one of those used last.
    #[inline(always)]
    pub fn known(&mut self, page: u64) -> Option<&mut u64> {
        let number = page >> BLOCK_SHIFT;
        let (known, block) = self.recent[(number as usize) % RECENT];
        if known != number {
            return None;
        }
        // SAFETY: as in `add`.
        Some(unsafe { &mut (*block)[page as usize & (BLOCK - 1)] })
    }

    #[cold]
    #[inline(never)]
    fn find(&mut self, number: u64) {
        let block = self
            .blocks
            .entry(number)
            .or_insert_with(|| Box::new(std::cell::UnsafeCell::new([0; BLOCK])));
        self.recent[(number as usize) % RECENT] = (number, block.get());
    }

    /// All pages with accesses as (page, reads, writes), ascending; the counts start again from zero.
    pub fn take(&mut self) -> Vec<(u64, u64, u64)> {
        let mut numbers: Vec<u64> = self.blocks.keys().copied().collect();
        numbers.sort_unstable();
        let mut cells = Vec::new();
        for number in numbers {
            let block = self
                .blocks
                .get_mut(&number)
                .expect("listed above")
                .get_mut();
            for (at, counter) in block.iter_mut().enumerate() {
                if *counter != 0 {
                    let page = number << BLOCK_SHIFT | at as u64;
                    cells.push((page, *counter & 0xffff_ffff, *counter >> 32));
                    *counter = 0;
                }
            }
        }
        cells
    }
}

impl Default for PageCounters {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_kept_apart_by_page_and_kind() {
        let mut counters = PageCounters::new();
        assert_eq!(counters.add(7, READ), 0);
        assert_eq!(counters.add(7, WRITE), 1);
        // Same slot of the recent table as page 7: 64 blocks of 512 pages further.
        let far = 7 + 64 * 512;
        counters.add(far, WRITE);
        counters.add(7, READ);
        assert_eq!(counters.take(), [(7, 2, 1), (far, 0, 1)]);
        assert_eq!(counters.take(), []);
        assert_eq!(counters.add(7, READ), 0);
    }
}
