//! Per-thread page counters: a pair of counts for each 4 KiB page, found by arithmetic.
//!
//! Each thread has its own table over the whole window (see [`crate::shadow`]), of which only used parts take memory:
//! 4 KiB for each 2 MiB of the program's memory that the thread touches, 1/512. Counting is one addition, without a
//! search. When a thread ends, its table is cleared and reused.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use crate::shadow::{Fixed, Shadow};

/// log2 of the size of the pages counted; larger pages are sums of these.
pub const PAGE_SHIFT: u32 = 12;
/// log2 of the number of pages whose counters share a page of the table.
const BLOCK_SHIFT: u32 = 9;

/// What one read adds to a counter: reads are in the low half, writes in the high half.
pub const READ: u64 = 1;
/// What one write adds to a counter.
pub const WRITE: u64 = 1 << 32;
/// Set in a counter that has been counted: code that adds to it sees by the sign whether it had been counted before.
const MARK: u64 = 1 << 63;

/// A counter of value `before` after `amount` more.
#[inline(always)]
#[must_use]
pub fn marked(before: u64, amount: u64) -> u64 {
    before.wrapping_add(amount) | MARK
}

/// Whether `munmap` with these arguments unmaps memory, as far as they show. What is known of the memory must be
/// forgotten before: afterwards another thread may have mapped, and written, the same pages.
#[must_use]
pub fn are_unmapped(address: u64, length: u64) -> bool {
    const END: u64 = 1 << 47;
    let end = address.checked_add(length);
    let whole = address.is_multiple_of(1 << PAGE_SHIFT) && length > 0;
    whole && end.is_some_and(|end| end <= END)
}

/// Number of blocks that are found at once.
const RECENT: usize = 64;

/// Cleared tables of ended threads.
static SPARE: Mutex<Vec<Shadow>> = Mutex::new(Vec::new());

/// See [`keep_apart`].
static APART: AtomicBool = AtomicBool::new(false);

/// Keeps counts of pages that processes share apart from the table, whose words for them remain 0: for frontends whose
/// code counts loads by the table alone.
pub fn keep_apart(apart: bool) {
    APART.store(apart, Relaxed);
}

/// Where counts are.
enum Place {
    /// In a table that another thread may have afterwards.
    Own(Shadow),
    /// In a table of the caller's.
    Callers(Shadow),
    /// In a table of the caller's, but not used.
    CallersUnused(Shadow),
    /// In words of a table of something else, and not used.
    Nowhere,
}

/// The counters of one thread, used by that thread alone.
pub struct PageCounters {
    place: Place,
    words: Fixed<PAGE_SHIFT>,
    /// Blocks of pages that may have counts.
    blocks: BTreeSet<u64>,
    /// Some of them, each plus one, at their number modulo [`RECENT`].
    recent: [u64; RECENT],
    /// Counts by page that are kept apart.
    apart: BTreeMap<u64, u64>,
}

impl PageCounters {
    /// Counters that are all zero.
    ///
    /// # Errors
    /// The system's error when address space for a table is not available.
    pub fn new() -> std::io::Result<Self> {
        // In a process forked while another thread held the lock, waiting for it would never end.
        let spare = SPARE.try_lock().ok().and_then(|mut spare| spare.pop());
        let table = match spare {
            Some(table) => table,
            None => Shadow::reserve(PAGE_SHIFT)?,
        };
        Ok(Self::of(Place::Own(table), &table))
    }

    /// Counters in `table`, which is empty, has units of a page, and remains the caller's.
    #[must_use]
    pub fn in_table(table: Shadow) -> Self {
        Self::of(Place::Callers(table), &table)
    }

    /// With words of a table.
    fn of(place: Place, table: &Shadow) -> Self {
        Self {
            place,
            words: table.fixed().expect("units of a page or smaller"),
            blocks: BTreeSet::new(),
            recent: [0; RECENT],
            apart: BTreeMap::new(),
        }
    }

    /// Counters for a thread that is not recorded: its counts overwrite words of `table`, which must have units of a
    /// page or smaller.
    #[must_use]
    pub fn discarding(table: &Shadow) -> Self {
        Self::of(Place::Nowhere, table)
    }

    /// Discards counts from now on, in a place of `table` as [`PageCounters::discarding`] does, unless generated code
    /// adds to the present one.
    pub fn discard(&mut self, table: &Shadow) {
        match self.place {
            Place::Callers(callers) | Place::CallersUnused(callers) => {
                self.place = Place::CallersUnused(callers);
            }
            Place::Own(_) | Place::Nowhere => *self = Self::discarding(table),
        }
    }

    /// The counters as the hot path finds them.
    #[must_use]
    pub(crate) fn words(&self) -> Fixed<PAGE_SHIFT> {
        self.words
    }

    /// Whether the counts are used.
    #[must_use]
    pub fn counts(&self) -> bool {
        matches!(self.place, Place::Own(_) | Place::Callers(_))
    }

    /// The counter of the page that holds `address`.
    ///
    /// A counter that is not zero may be added to directly; the first count goes through [`PageCounters::add`]. Each
    /// half holds 2^31 - 1: [`PageCounters::take`] must be called before that many accesses.
    #[inline(always)]
    #[must_use]
    pub fn word(&self, address: u64) -> &AtomicU64 {
        self.words.word(address)
    }

    /// Adds to the counter of the page that holds `address`; returns its previous value, 0 for the first count.
    #[inline(always)]
    pub fn add(&mut self, address: u64, amount: u64) -> u64 {
        let counter = self.word(address);
        let before = counter.load(Relaxed);
        counter.store(marked(before, amount), Relaxed);
        if before == 0 && !self.is_found(address) {
            let block = address >> PAGE_SHIFT >> BLOCK_SHIFT;
            self.blocks.insert(block);
            self.recent[block as usize % RECENT] = block + 1;
        }
        before
    }

    /// Whether a page's count will be found although it is still 0: then [`PageCounters::word`] may be added to.
    #[inline(always)]
    #[must_use]
    pub fn is_found(&self, address: u64) -> bool {
        let block = address >> PAGE_SHIFT >> BLOCK_SHIFT;
        self.recent[block as usize % RECENT] == block.wrapping_add(1)
    }

    /// Takes the count of a page that processes share out of the table, if [`keep_apart`] was called.
    #[inline(always)]
    pub fn set_apart(&mut self, address: u64) {
        if APART.load(Relaxed) && self.counts() {
            let count = self.word(address).swap(0, Relaxed) & !MARK;
            *self.apart.entry(address >> PAGE_SHIFT).or_default() += count;
        }
    }

    /// Takes back what was added to the counter of the page that holds `address`; returns what is left of it, or
    /// `None`, without a change, if less was added.
    pub fn take_back(&mut self, address: u64, amount: u64) -> Option<u64> {
        let counter = self.word(address);
        let before = counter.load(Relaxed);
        let (reads, writes) = (before & 0xffff_ffff, (before & !MARK) >> 32);
        if reads < amount & 0xffff_ffff || writes < amount >> 32 {
            return None;
        }
        let left = (before & !MARK) - amount;
        let now = if left == 0 { 0 } else { before - amount };
        counter.store(now, Relaxed);
        Some(left)
    }

    /// Takes the counts of all pages with accesses as (page, reads, writes), ascending; the counters restart from
    /// zero.
    ///
    /// Pages that the window folds together are counted for the lower one.
    pub fn take(&mut self) -> Vec<(u64, u64, u64)> {
        let mut cells = Vec::new();
        self.recent = [0; RECENT];
        for block in std::mem::take(&mut self.blocks) {
            self.take_pages(block << BLOCK_SHIFT..(block + 1) << BLOCK_SHIFT, &mut cells);
        }
        cells
    }

    /// Like [`PageCounters::take`], for a range of pages.
    pub fn take_some(&mut self, pages: Range<u64>) -> Vec<(u64, u64, u64)> {
        let mut cells = Vec::new();
        let blocks = pages.start >> BLOCK_SHIFT..pages.end.div_ceil(1 << BLOCK_SHIFT);
        let blocks: Vec<u64> = self.blocks.range(blocks).copied().collect();
        for block in blocks {
            let (start, end) = (block << BLOCK_SHIFT, (block + 1) << BLOCK_SHIFT);
            let some = start.max(pages.start)..end.min(pages.end);
            self.take_pages(some, &mut cells);
        }
        cells
    }

    fn take_pages(&mut self, pages: Range<u64>, cells: &mut Vec<(u64, u64, u64)>) {
        for page in pages {
            let word = self.word(page << PAGE_SHIFT);
            let count = word.load(Relaxed);
            if count != 0 {
                word.store(0, Relaxed);
            }
            let apart = match self.apart.is_empty() {
                true => 0,
                false => self.apart.remove(&page).unwrap_or(0),
            };
            let all = (count & !MARK).wrapping_add(apart);
            if all != 0 {
                cells.push((page, all & 0xffff_ffff, all >> 32));
            }
        }
    }
}

impl Drop for PageCounters {
    fn drop(&mut self) {
        let (Place::Own(table) | Place::Callers(table) | Place::CallersUnused(table)) = self.place
        else {
            return;
        };
        // Clears the table and frees its memory.
        table.clear();
        if matches!(self.place, Place::Own(_))
            && let Ok(mut spare) = SPARE.try_lock()
        {
            spare.push(table);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_munmap_refuses_is_known_by_its_arguments() {
        let refused = [
            (0x1001, 4096),
            (0x1000, 0),
            (u64::MAX - 4095, 8192),
            (1 << 47, 1),
        ];
        assert!(
            refused
                .iter()
                .all(|&(address, length)| !are_unmapped(address, length))
        );
        assert!(are_unmapped(0x1000, 1) && are_unmapped((1 << 47) - 4096, 4096));
    }

    #[test]
    fn counts_are_separate_by_page_and_kind() {
        let mut counters = PageCounters::new().unwrap();
        assert_eq!(counters.add(7 << 12, READ), 0);
        assert_ne!(counters.add(7 << 12 | 0xfff, WRITE), 0);
        // Another block of the table.
        let far = 7 + 64 * 512;
        counters.add(far << 12, WRITE);
        counters.add(7 << 12, READ);
        assert_eq!(counters.take_some(8..far), []);
        assert_eq!(counters.take(), [(7, 2, 1), (far, 0, 1)]);
        assert_eq!(counters.take(), []);
        assert_eq!(counters.add(7 << 12, READ), 0);
    }

    #[test]
    fn counts_kept_apart_leave_the_table_and_are_taken_with_it() {
        let mut counters = PageCounters::new().unwrap();
        counters.add(9 << 12, READ);
        counters.set_apart(9 << 12);
        let kept = counters.word(9 << 12).load(Relaxed);
        assert_eq!(kept, marked(0, READ), "not asked for");
        keep_apart(true);
        counters.set_apart(9 << 12);
        keep_apart(false);
        assert_eq!(counters.word(9 << 12).load(Relaxed), 0);
        counters.add(9 << 12, READ);
        assert_eq!(counters.take(), [(9, 2, 0)]);
        assert_eq!(counters.take(), []);
    }

    #[test]
    fn a_block_is_found_from_its_first_count_to_the_next_take() {
        let mut counters = PageCounters::new().unwrap();
        let (page, other) = (7 << 12, (7 + 512 * RECENT as u64) << 12);
        assert!(!counters.is_found(page));
        counters.add(page, READ);
        assert!(counters.is_found(page) && counters.is_found(8 << 12));
        assert!(!counters.is_found(other));
        counters.add(other, READ);
        assert!(!counters.is_found(page) && counters.is_found(other));
        counters.word(other + 4096).store(WRITE, Relaxed);
        let after = (other >> 12) + 1;
        assert_eq!(
            counters.take(),
            [(7, 1, 0), (after - 1, 1, 0), (after, 0, 1)]
        );
        assert!(!counters.is_found(other));
    }

    #[test]
    fn a_counter_is_negative_from_its_first_count_on() {
        let mut counters = PageCounters::new().unwrap();
        let sign = |counters: &PageCounters| counters.word(7 << 12).load(Relaxed) as i64;
        assert_eq!(sign(&counters), 0);
        counters.add(7 << 12, READ);
        assert!(sign(&counters) < 0);
        counters.add(7 << 12, WRITE * 3);
        assert!(sign(&counters) < 0);
        assert_eq!(counters.take(), [(7, 1, 3)]);
        assert_eq!(sign(&counters), 0);
    }

    #[test]
    fn what_was_added_last_can_be_taken_back() {
        let mut counters = PageCounters::new().unwrap();
        counters.add(7 << 12, WRITE * 3);
        assert_eq!(counters.take_back(7 << 12, WRITE * 4), None);
        assert_eq!(counters.take_back(7 << 12, READ), None);
        assert_eq!(counters.take_back(7 << 12, WRITE), Some(WRITE * 2));
        assert_eq!(counters.take_back(7 << 12, WRITE * 2), Some(0));
        assert_eq!(counters.add(7 << 12, READ), 0, "the first again");
        assert_eq!(counters.take(), [(7, 1, 0)]);
    }

    #[test]
    fn a_range_is_taken_and_the_rest_stays() {
        let mut counters = PageCounters::new().unwrap();
        for page in [511, 512, 513, 1024] {
            counters.add(page << 12, WRITE);
        }
        assert_eq!(counters.take_some(512..1024), [(512, 0, 1), (513, 0, 1)]);
        assert_eq!(counters.add(513 << 12, READ), 0);
        assert_eq!(counters.take(), [(511, 0, 1), (513, 1, 0), (1024, 0, 1)]);
    }

    #[test]
    fn a_reused_table_is_empty() {
        let mut first = PageCounters::new().unwrap();
        first.add(0x5000, READ);
        drop(first);
        let mut second = PageCounters::new().unwrap();
        assert_eq!(second.take(), []);
        assert_eq!(second.add(0x5000, WRITE), 0);
    }
}
