//! The estimate by slices: a cache per thread that holds its most recently used pages.

use std::collections::BTreeSet;

use numaloc_model::profile::PageSliceRow;
use numaloc_model::{PageUsage, ThreadAccess, ThreadIdx};

use super::{cut, head, keep, swept};

/// Use of a page by a thread so far.
#[derive(Clone, Copy, Default)]
struct Cell {
    /// Stores by the thread, estimated.
    own: u64,
    /// Stores by other threads up to the last visit.
    seen: u64,
    misses: u64,
    /// Slice of the last visit plus one; 0 before the first.
    visited: u32,
}

/// The pages in a thread's private cache, by slice of last use, then page.
type Cached = BTreeSet<(u32, u32)>;

/// Page use in private caches of `room` pages.
pub(super) fn by_slices(
    usage: &PageUsage,
    rows: &[PageSliceRow],
    threads: usize,
    room: usize,
    line_bytes: u64,
) -> PageUsage {
    let mut state = State::new(usage, threads, room, line_bytes);
    for slice in rows.chunk_by(|a, b| a.slice == b.slice) {
        state.take(slice);
    }
    state.finish()
}

struct State<'a> {
    usage: &'a PageUsage,
    room: usize,
    line_bytes: u64,
    /// Index of each page's first cell.
    start: Vec<usize>,
    cells: Vec<Cell>,
    /// Stores to each page before this slice, and in it.
    before: Vec<u64>,
    now: Vec<u64>,
    caches: Vec<Cached>,
}

impl<'a> State<'a> {
    fn new(usage: &'a PageUsage, threads: usize, room: usize, line_bytes: u64) -> Self {
        let mut start = Vec::with_capacity(usage.pages().len());
        let mut cells = 0;
        for page in usage.pages() {
            start.push(cells);
            cells += usage.accesses(page).len();
        }
        Self {
            usage,
            room,
            line_bytes,
            cells: vec![Cell::default(); cells],
            before: vec![0; start.len()],
            now: vec![0; start.len()],
            start,
            caches: vec![Cached::new(); threads],
        }
    }

    /// A row's thread's accesses to its page over the whole run, and their cell.
    fn of(&self, row: &PageSliceRow) -> Option<(ThreadAccess, usize)> {
        let page = self.usage.pages().get(row.page as usize)?;
        let accesses = self.usage.accesses(page);
        let at = accesses
            .binary_search_by_key(&row.thread, |access| access.thread)
            .ok()?;
        Some((accesses[at], self.start[row.page as usize] + at))
    }

    /// Processes the rows of one slice.
    fn take(&mut self, rows: &[PageSliceRow]) {
        let mut by_thread: Vec<(ThreadIdx, &PageSliceRow)> =
            rows.iter().map(|row| (row.thread, row)).collect();
        by_thread.sort_by_key(|&(thread, _)| thread);
        for row in rows {
            if let Some((whole, cell)) = self.of(row) {
                let stores = cut(&whole, row.accesses).writes;
                self.cells[cell].own += stores;
                self.now[row.page as usize] += stores;
            }
        }
        for of_thread in by_thread.chunk_by(|a, b| a.0 == b.0) {
            self.visit(of_thread[0].0, of_thread);
        }
        for row in rows {
            let page = row.page as usize;
            self.before[page] += std::mem::take(&mut self.now[page]);
        }
    }

    /// Processes a thread's page use in a slice.
    fn visit(&mut self, thread: ThreadIdx, rows: &[(ThreadIdx, &PageSliceRow)]) {
        let lines = (self.usage.page_size() / self.line_bytes.max(1)).max(1);
        let mut stay: Vec<(u64, usize, u64)> = rows
            .iter()
            .map(|(_, row)| {
                let others = self.of(row).map_or(0, |(whole, _)| {
                    let own = cut(&whole, row.accesses).writes;
                    self.now[row.page as usize].saturating_sub(own)
                });
                let misses = lines.saturating_add(others).min(row.accesses);
                (row.accesses, row.page as usize, misses)
            })
            .collect();
        keep(&mut stay, self.room);
        let mut stay = stay.into_iter().peekable();
        for (_, row) in rows {
            let Some((whole, at)) = self.of(row) else {
                continue;
            };
            let page = row.page as usize;
            let stays = stay.next_if(|kept| kept.1 == page).is_some();
            let cell = &mut self.cells[at];
            let stores = cut(&whole, row.accesses);
            // Stores by other threads: before this slice, and in it.
            let others_now = self.now[page].saturating_sub(stores.writes);
            let own_before = cell.own.saturating_sub(stores.writes);
            let others_before = self.before[page].saturating_sub(own_before);
            let held = self.caches[thread.index()].remove(&(cell.visited, row.page));
            let misses = if held && stays {
                let lost = others_before.saturating_sub(cell.seen).min(lines);
                lost.saturating_add(others_now)
            } else if stays {
                lines.saturating_add(others_now)
            } else if cell.visited == 0 {
                let first = self.usage.pages()[page].first_touch;
                swept(&stores, first, self.usage.page_size(), self.line_bytes).total()
            } else {
                row.accesses
            };
            cell.misses += misses.min(row.accesses);
            cell.seen = others_before + others_now;
            cell.visited = row.slice.0 + 1;
            if stays {
                self.caches[thread.index()].insert((cell.visited, row.page));
            }
        }
        let cached = &mut self.caches[thread.index()];
        while cached.len() > self.room {
            cached.pop_first();
        }
    }

    fn finish(self) -> PageUsage {
        let mut beyond = PageUsage::new(self.usage.page_size());
        for (at, page) in self.usage.pages().iter().enumerate() {
            let accesses = self.usage.accesses(page).iter().enumerate();
            let remaining =
                accesses.map(|(n, access)| cut(access, self.cells[self.start[at] + n].misses));
            beyond.push(head(page), remaining.collect());
        }
        beyond
    }
}

#[cfg(test)]
mod tests {
    use numaloc_model::SliceIdx;
    use proptest::prelude::*;

    use crate::beyond_caches::beyond_private_caches;
    use crate::pages::tests::usage_of;

    use super::*;

    fn row(slice: u32, page: u32, thread: u32, accesses: u64) -> PageSliceRow {
        PageSliceRow {
            slice: SliceIdx(slice),
            page,
            thread: ThreadIdx(thread),
            accesses,
        }
    }

    /// Accesses that leave caches of two pages, by page and thread.
    fn remaining(pages: &[(u32, Vec<u64>)], rows: &[PageSliceRow]) -> Vec<Vec<u64>> {
        let usage = usage_of(pages);
        let beyond = beyond_private_caches(&usage, rows, 2, 8192, 64);
        let pages = beyond.pages().iter();
        pages
            .map(|page| {
                beyond
                    .accesses(page)
                    .iter()
                    .map(ThreadAccess::total)
                    .collect()
            })
            .collect()
    }

    #[test]
    fn a_block_stays_cached_while_it_is_worked_on() {
        // Thread 0 uses two of four pages at a time, each pair in two slices. The whole run's four pages do not fit
        // into two, and none is hotter than the others.
        let pages = vec![(9, vec![3000]); 4];
        let rows: Vec<PageSliceRow> = (0..4)
            .flat_map(|slice| (0..2).map(move |page| row(slice, slice / 2 * 2 + page, 0, 1500)))
            .collect();
        assert_eq!(remaining(&pages, &rows), vec![vec![64]; 4]);
        assert_eq!(remaining(&pages, &[]), vec![vec![3000]; 4]);
        // Without all rows the whole run decides.
        assert_eq!(remaining(&pages, &rows[1..]), vec![vec![3000]; 4]);
        // Alternating use: each pair evicts the other.
        let turns: Vec<PageSliceRow> = (0..4)
            .flat_map(|slice| (0..2).map(move |page| row(slice, slice % 2 * 2 + page, 0, 1500)))
            .collect();
        assert_eq!(remaining(&pages, &turns), vec![vec![128]; 4]);
    }

    #[test]
    fn stores_by_others_between_slices_invalidate_each_line_once() {
        // A third of all accesses are stores. Thread 1 stores 300 times in the slice between thread 0's two: that
        // invalidates all 64 lines of the page. In the slice that both use, each store of the other counts: 20 of 60
        // and 100 of 300.
        let rows = [
            row(0, 0, 0, 600),
            row(1, 0, 1, 900),
            row(2, 0, 0, 600),
            row(3, 0, 0, 60),
            row(3, 0, 1, 300),
        ];
        let pages = [(9, vec![1260, 1200])];
        // Thread 0: 64, then 64 again, then 100 but no more than the 60 there were. Thread 1: 64; then 64 of the 200
        // stores in slice 2 and 20.
        assert_eq!(remaining(&pages, &rows), [[64 + 64 + 60, 64 + 64 + 20]]);
    }

    #[test]
    fn if_a_slice_has_too_many_pages_the_hot_ones_stay() {
        // Three pages, room for two: the third is used four times as often as the middle one and stays for the next
        // slice.
        let pages = [(9, vec![200]), (9, vec![200]), (9, vec![1600])];
        let rows = [
            row(0, 0, 0, 100),
            row(0, 1, 0, 100),
            row(0, 2, 0, 800),
            row(1, 0, 0, 100),
            row(1, 1, 0, 100),
            row(1, 2, 0, 800),
        ];
        assert_eq!(remaining(&pages, &rows), [[200], [200], [64]]);
    }

    proptest! {
        /// Never more accesses than in the profile, for any rows.
        #[test]
        fn never_more_than_there_were(
            rows in proptest::collection::vec((0u32..4, 0u32..3, 0u32..2, 0u64..3000), 0..40),
            room in 0u64..4,
        ) {
            let mut counts = vec![(0, vec![0u64, 0]); 3];
            let rows: Vec<PageSliceRow> = rows.into_iter().map(|(s, p, t, n)| row(s, p, t, n)).collect();
            for row in &rows {
                counts[row.page as usize].1[row.thread.index()] += row.accesses;
            }
            let usage = usage_of(&counts);
            let beyond = beyond_private_caches(&usage, &rows, 2, room * 4096, 64);
            for (all_page, beyond_page) in usage.pages().iter().zip(beyond.pages()) {
                let pairs = usage.accesses(all_page).iter().zip(beyond.accesses(beyond_page));
                for (all, beyond) in pairs {
                    prop_assert!(beyond.thread == all.thread && beyond.total() <= all.total());
                }
            }
        }
    }
}
