//! Accesses to pages, by slice and thread. The counts of a recording are many: they are kept as sorted rows.

use std::ops::Range;

use numaloc_journal::Record;
use numaloc_model::ThreadAccess;
use numaloc_model::ids::{PageNumber, SliceIdx, ThreadIdx};
use numaloc_model::pages::PageHead;
use numaloc_model::profile::{PageSlice, ProfileBuilder};

use crate::Assembly;
use crate::load::Space;
use crate::sampling::PageScales;
use crate::touches::Touch;

/// Accesses of a thread to a page in a slice.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    /// Number of the page in its process image, or of its row in the profile.
    pub page: u64,
    slice: SliceIdx,
    thread: ThreadIdx,
    reads: u64,
    writes: u64,
}

impl Cell {
    fn key(&self) -> (u64, SliceIdx, ThreadIdx) {
        (self.page, self.slice, self.thread)
    }
}

/// The pages of a process image.
pub(super) struct Pages {
    /// By page, slice and thread; one for each.
    cells: Vec<Cell>,
    /// Each page of the cells, and how it was placed.
    placed: Vec<(u64, Option<Touch>)>,
}

impl Pages {
    /// Their numbers.
    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        self.placed.iter().map(|&(page, _)| page)
    }

    /// Number, how it was placed, and cells of each page.
    pub fn rows(&self) -> impl Iterator<Item = (u64, Option<Touch>, &[Cell])> {
        let cells = self.cells.chunk_by(|a, b| a.page == b.page);
        let placed = self.placed.iter();
        placed
            .zip(cells)
            .map(|(&(page, first), cells)| (page, first, cells))
    }
}

/// Sorts rows by a key, and adds up those with the same.
fn add_up<T, K: Ord>(rows: &mut Vec<T>, key: impl Fn(&T) -> K, add: impl Fn(&mut T, &T)) {
    // Cells of a record are sorted already, which this sort makes use of.
    rows.sort_by_key(&key);
    rows.dedup_by(|next, sum| {
        let same = key(next) == key(sum);
        if same {
            add(sum, next);
        }
        same
    });
}

/// [`add_up`] by page, slice and thread.
fn join(cells: &mut Vec<Cell>) {
    add_up(cells, Cell::key, |sum, cell| {
        sum.reads += cell.reads;
        sum.writes += cell.writes;
    });
}

impl Assembly<'_> {
    /// The pages of a process image, of `factor` pages of 4 KiB.
    pub(super) fn pages(
        &self,
        space: &Space,
        factor: u64,
        slice_of: impl Fn(u64) -> SliceIdx,
    ) -> Pages {
        let mut cells = self.cells_of_pages(space, factor, slice_of);
        join(&mut cells);
        let mut placed: Vec<(u64, Option<Touch>)> =
            cells.iter().map(|cell| (cell.page, None)).collect();
        placed.dedup_by_key(|&mut (page, _)| page);
        let touches = self.touches(space, |range| accessed(&placed, range, factor));
        let mut rows = placed.iter_mut().peekable();
        for (page, touch) in touches {
            let coarse = page / factor;
            while rows.next_if(|row| row.0 < coarse).is_some() {}
            // A page without accesses is no row.
            if let Some((_, first)) = rows.peek_mut().filter(|row| row.0 == coarse) {
                *first = Some(first.map_or(touch, |earlier| earlier.min(touch)));
            }
        }
        Pages { cells, placed }
    }

    fn cells_of_pages(
        &self,
        space: &Space,
        factor: u64,
        slice_of: impl Fn(u64) -> SliceIdx,
    ) -> Vec<Cell> {
        let scales = PageScales::of(space);
        let mut all = Vec::new();
        for record in &space.records {
            let Record::Pages {
                thread: number,
                start,
                cells,
                ..
            } = record
            else {
                continue;
            };
            let Some(thread) = self.thread(space, *number) else {
                continue;
            };
            let slice = slice_of(*start);
            let totals = space.totals.get(number).copied().unwrap_or_default();
            all.extend(cells.iter().map(|&(page, reads, writes)| {
                let estimate = |amount| match &scales {
                    Some(scales) => scales.estimate(*number, page, amount),
                    None => totals.by_accesses(amount),
                };
                Cell {
                    page: page / factor,
                    slice,
                    thread,
                    reads: estimate(reads),
                    writes: estimate(writes),
                }
            }));
        }
        all
    }
}

/// Those of a range of pages of 4 KiB that belong to one of some pages of `factor` such.
fn accessed(
    pages: &[(u64, Option<Touch>)],
    range: Range<u64>,
    factor: u64,
) -> impl Iterator<Item = u64> {
    let coarse = range.start / factor..range.end.div_ceil(factor);
    let first = pages.partition_point(|row| row.0 < coarse.start);
    let pages = pages[first..].iter().map(|row| row.0);
    pages
        .take_while(move |&page| page < coarse.end)
        .flat_map(move |page| {
            (page * factor).max(range.start)..((page + 1) * factor).min(range.end)
        })
}

/// The rows of a profile, of all process images.
#[derive(Default)]
pub(super) struct Rows {
    heads: Vec<(PageHead, Option<Touch>)>,
    cells: Vec<Cell>,
}

impl Rows {
    /// Adds a row, without accesses; returns its number.
    pub fn push(&mut self, head: PageHead) -> usize {
        self.heads.push((head, None));
        self.heads.len() - 1
    }

    /// The number of a row's page.
    pub fn page(&self, row: usize) -> PageNumber {
        self.heads[row].0.number
    }

    /// Adds accesses to a row, and how its page was placed: the first time counts.
    pub fn add(&mut self, row: usize, first: Option<Touch>, cells: &[Cell]) {
        let before = &mut self.heads[row].1;
        *before = match (*before, first) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let page = row as u64;
        self.cells
            .extend(cells.iter().map(|cell| Cell { page, ..*cell }));
    }

    /// Adds the rows to `tables`.
    pub fn add_to(mut self, tables: &mut ProfileBuilder) {
        join(&mut self.cells);
        tables.reserve_pages(self.heads.len(), self.cells.len());
        let cells = self.cells.chunk_by(|a, b| a.page == b.page);
        for ((head, first), cells) in self.heads.into_iter().zip(cells) {
            add_row(tables, head, first, cells);
        }
    }
}

/// Adds a page and its use by slice to `tables`. Pages of the page cache have no first toucher.
fn add_row(tables: &mut ProfileBuilder, head: PageHead, first: Option<Touch>, cells: &[Cell]) {
    let stores = cells.iter().map(|cell| cell.writes).sum();
    let is_cached = head
        .object
        .is_some_and(|object| tables.objects[object.index()].is_page_cached(stores));
    let first = first.filter(|_| !is_cached);
    tables.page(
        PageHead {
            first_touch: first.map(|first| first.thread),
            first_touch_time: first.map_or(0, |first| first.time),
            policy: first.and_then(|first| first.policy),
            ..head
        },
        by_thread(cells),
    );
    tables
        .page_slices
        .extend(cells.iter().map(|cell| PageSlice {
            slice: cell.slice,
            page: head.number,
            thread: cell.thread,
            accesses: cell.reads + cell.writes,
        }));
}

/// The accesses of each thread, by thread.
fn by_thread(cells: &[Cell]) -> Vec<ThreadAccess> {
    let mut threads: Vec<ThreadAccess> = cells
        .iter()
        .map(|cell| ThreadAccess {
            thread: cell.thread,
            reads: cell.reads,
            writes: cell.writes,
        })
        .collect();
    let thread = |access: &ThreadAccess| access.thread;
    add_up(&mut threads, thread, |sum, access| {
        sum.reads += access.reads;
        sum.writes += access.writes;
    });
    threads
}
