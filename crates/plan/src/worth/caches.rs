//! Which of the lines that leave private caches a last-level cache answers, for threads at their PUs.
//!
//! A page is in a last-level cache if its cores' threads have used at most as many others since as it holds. Threads of
//! one cache that use a page in the same slice fetch each of its lines once.

use super::demand::Demand;
use super::figures::Seat;

/// Lines of a [`super::demand::Row`] by what answers them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fetched {
    /// The last-level cache.
    pub shared: u32,
    /// Memory.
    pub memory: u32,
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
            let cache = &mut caches[group];
            if cache.page.replace(row.page) != Some(row.page) {
                let last = &mut last[group * pages + row.page as usize];
                let since = u64::from((cache.used + 1).saturating_sub(*last));
                cache.missing = match *last > 0 && since <= room {
                    true => 0,
                    false => demand.lines_of_page,
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
            found.push(Fetched { shared, memory });
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
