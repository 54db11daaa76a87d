//! Which of the lines that leave private caches a last-level cache answers, for threads at their PUs.
//!
//! A page is in a last-level cache if its cores' threads have used at most as many others since as it holds. Threads of
//! one cache that use a page in the same slice fetch each of its lines once.
//!
//! **Lines that others wrote.** An event of communication and a page's row may mean one line. If the cache of the
//! thread that wrote the page last still has it, the line comes from there: the event counts, and the row counts less
//! by as many lines as there are events. If that cache has dropped the page, its lines come from memory: the row
//! counts, and the event does not. Events beyond the lines of the rows are lines that were exchanged repeatedly.

use super::demand::Demand;
use super::figures::Seat;

/// Lines of a [`super::demand::Row`] by what answers them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fetched {
    /// The last-level cache.
    pub shared: u32,
    /// Memory.
    pub memory: u32,
    /// Whether the page is written by others, and in a cache of its last writer.
    pub held: bool,
}

/// How events and rows of a thread in a segment share the lines that both count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Overlap {
    /// Part of the events that are transfers between caches.
    pub events: f64,
    /// Part (0..=1) of those transfers that are prefetched.
    pub streamed: f64,
    /// Part of the lines of rows with [`Fetched::held`] that are not among the events.
    pub rows: f32,
}

/// By segment (one if rows are of the whole run) and thread.
pub(super) fn overlaps(demand: &Demand, fetched: &[Fetched]) -> Vec<Overlap> {
    let mut lines = vec![[0.0_f64; 2]; demand.received.len()];
    for (row, found) in demand.rows.iter().zip(fetched) {
        if row.written {
            lines[demand.cell(row)][usize::from(found.held)] += f64::from(row.first);
        }
    }
    let overlap = |((&[dropped, held], &received), &swept): ((&[f64; 2], &f64), &f64)| {
        let streamed = (swept / received.max(1.0)).min(1.0);
        let all = dropped + held;
        let both = received.min(all);
        match both > 0.0 {
            true => Overlap {
                events: (both * held / all + received - both) / received,
                streamed,
                rows: (1.0 - both / all) as f32,
            },
            false => Overlap {
                events: 1.0,
                streamed,
                rows: 1.0,
            },
        }
    };
    let cells = lines.iter().zip(&demand.received).zip(&demand.swept);
    cells.map(overlap).collect()
}

/// Lines of each row of the demand, for threads at `seats`, with `groups` caches of `bytes` for `pages` pages.
pub(super) fn fetched(
    demand: &Demand,
    seats: &[Seat],
    groups: usize,
    pages: usize,
    bytes: u64,
) -> Vec<Fetched> {
    let room = bytes / demand.page_bytes.max(1);
    let mut caches = vec![Cache::default(); groups];
    // Pages used by the cache's threads before the page was used last, plus one; 0 before the first use.
    let mut last = vec![0_u32; groups * pages];
    // Cache of the thread that stored to the page last, plus one.
    let mut writers = vec![0_u32; pages];
    let mut found = Vec::with_capacity(demand.rows.len());
    for slice in demand.rows.chunk_by(|a, b| a.slice == b.slice) {
        for cache in &mut caches {
            (cache.here, cache.page) = (0, None);
        }
        for row in slice {
            let cache = &mut caches[seats[row.thread as usize].group];
            if cache.page.replace(row.page) != Some(row.page) {
                cache.here += 1;
            }
        }
        for cache in &mut caches {
            cache.page = None;
        }
        for row in slice {
            let group = seats[row.thread as usize].group;
            let (page, writer) = (row.page as usize, &mut writers[row.page as usize]);
            let held = row.written && *writer > 0 && {
                let cache = *writer as usize - 1;
                let since = caches[cache].since(last[cache * pages + page]);
                since.is_some_and(|since| since <= room)
            };
            if row.stores > 0.0 {
                *writer = group as u32 + 1;
            }
            let cache = &mut caches[group];
            if cache.page.replace(row.page) != Some(row.page) {
                let last = &mut last[group * pages + page];
                cache.missing = match cache.since(*last) {
                    Some(since) if since <= room => 0,
                    _ => demand.lines_of_page,
                };
                cache.used = cache.used.saturating_add(1);
                *last = cache.used;
            }
            let mut memory = row.first.min(cache.missing);
            cache.missing -= memory;
            let mut shared = row.first - memory;
            match cache.here <= room {
                true => shared = shared.saturating_add(row.again),
                false => memory = memory.saturating_add(row.again),
            }
            found.push(Fetched {
                shared,
                memory,
                held,
            });
        }
    }
    found
}

/// A last-level cache.
#[derive(Clone, Default)]
struct Cache {
    /// Pages that its threads have used, counted again in every slice.
    used: u32,
    /// Pages of this slice.
    here: u64,
    /// The current page, and how many of its lines are not in the cache yet.
    page: Option<u32>,
    missing: u32,
}

impl Cache {
    /// Pages used since a page's last use, which is that page itself at first; `None` before the first.
    fn since(&self, last: u32) -> Option<u64> {
        (last > 0).then(|| u64::from((self.used + 1).saturating_sub(last)))
    }
}
