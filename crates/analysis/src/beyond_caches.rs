//! Estimates the page accesses that leave a core's private caches: the only ones for which the page's node matters.
//!
//! A profile counts every access to a page, including millions to the top of a stack that no memory controller ever
//! sees. The result is an estimate, not a simulation (the profile has no order of accesses; the access trace has, see
//! [`crate::dram`]).
//!
//! **By slice.** A thread's accesses in a slice are cached page by page: its private cache holds its most recently used
//! pages by slice, as many as fit. A page that is not cached costs a miss per line; a cached one none. Stores by other
//! threads invalidate lines: one miss each, of those before the slice at most one per line. If the pages of one slice
//! do not fit, those stay that the rules for a whole run would keep, and all accesses to the others count.
//!
//! **By run**, if pages were not counted by slice:
//!
//! 1. *Initialisation is a sweep.* The first stores of a page's first toucher, at most one for every 4 bytes, miss once
//!    per line of eight words, not at each word.
//! 2. *Hot pages stay.* Each thread keeps in its private cache the pages for which that saves most, as many as fit. If
//!    all its pages fit, any; otherwise only those used at least [`HOT`] times as often as half of its pages, because
//!    equally used pages evict each other. A page that stays costs one miss per line, the first, and at most one more
//!    for each store by another thread, which invalidates the line.
//!
//! All other accesses count fully. Slices show what a whole run hides: a thread that works on one block after the other
//! keeps each while it works on it, even if all of them together do not fit.
//!
//! Ours; the papers count accesses that reach DRAM by hardware counters (OPT section 5.1, CMLB III-A).
//!
//! Cost: O(page cells) and a selection per thread, and O(log pages) for each row of page use by slice; memory O(page
//! cells).

use std::cmp::Reverse;

use numaloc_model::pages::{Page, PageHead};
use numaloc_model::profile::PageSliceRow;
use numaloc_model::{PageUsage, ThreadAccess, ThreadIdx};

use self::slices::by_slices;

mod slices;

/// Private cache of a core if the machine does not specify it: the L2 of the X7550 and E5 v4 generations.
pub const PRIVATE_CACHE: u64 = 256 << 10;

/// A page is hot if it is used this many times as often as half of the thread's pages.
pub const HOT: u64 = 4;
/// Bytes of the smallest word used for initialising pages.
const SMALL_WORD: u64 = 4;
/// Bytes of a word.
const WORD: u64 = 8;

/// The accesses of `usage` that leave private caches of `cache_bytes`, with lines of `line_bytes`: for each page and
/// thread, never more than in `usage`. `by_slice` is the same usage by slice, or empty.
#[must_use]
pub fn beyond_private_caches(
    usage: &PageUsage,
    by_slice: &[PageSliceRow],
    threads: usize,
    cache_bytes: u64,
    line_bytes: u64,
) -> PageUsage {
    // Rows dropped for lack of memory would count as no accesses.
    let counted: u64 = by_slice.iter().map(|row| row.accesses).sum();
    if counted > 0 && counted == usage.total() {
        let room = (cache_bytes / usage.page_size().max(1)) as usize;
        return by_slices(usage, by_slice, threads, room, line_bytes);
    }
    by_run(usage, threads, cache_bytes, line_bytes)
}

fn by_run(usage: &PageUsage, threads: usize, cache_bytes: u64, line_bytes: u64) -> PageUsage {
    let lines = (usage.page_size() / line_bytes.max(1)).max(1);
    let room = (cache_bytes / usage.page_size().max(1)) as usize;
    // By thread: accesses to a page, the page, and the remaining accesses if it stays in the cache.
    let mut used: Vec<Vec<(u64, usize, u64)>> = vec![Vec::new(); threads];
    for (at, page) in usage.pages().iter().enumerate() {
        let accesses = usage.accesses(page);
        let stores: u64 = accesses.iter().map(|access| access.writes).sum();
        for access in accesses {
            let misses = lines.saturating_add(stores - access.writes);
            used[access.thread.index()].push((access.total(), at, misses.min(access.total())));
        }
    }
    for pages in &mut used {
        keep(pages, room);
    }
    let kept = used;
    let mut next = vec![0usize; threads];
    let mut beyond = PageUsage::new(usage.page_size());
    for (at, page) in usage.pages().iter().enumerate() {
        let remaining = usage.accesses(page).iter().map(|access| {
            let thread = access.thread.index();
            match kept[thread].get(next[thread]) {
                Some(&(_, page, misses)) if page == at => {
                    next[thread] += 1;
                    cut(access, misses)
                }
                _ => swept(access, page.first_touch, usage.page_size(), line_bytes),
            }
        });
        beyond.push(head(page), remaining.collect());
    }
    beyond
}

fn head(page: &Page) -> PageHead {
    PageHead {
        number: page.number,
        object: page.object,
        object_page: page.object_page,
        first_touch: page.first_touch,
        first_touch_time: page.first_touch_time,
        policy: page.policy,
    }
}

/// Keeps the pages that stay in a cache of `room` pages, by ascending page.
fn keep(pages: &mut Vec<(u64, usize, u64)>, room: usize) {
    if pages.len() > room {
        let middle = pages.len() / 2;
        let (_, &mut (usual, ..), _) = pages.select_nth_unstable_by_key(middle, |page| page.0);
        pages.retain(|&(accesses, ..)| accesses >= usual.saturating_mul(HOT));
    }
    if pages.len() > room {
        // The accesses saved by staying; of equals the lower page.
        pages.sort_unstable_by_key(|&(accesses, at, misses)| (Reverse(accesses - misses), at));
        pages.truncate(room);
    }
    pages.sort_unstable_by_key(|&(_, at, _)| at);
}

/// The accesses with the first toucher's initialisation counted by lines.
fn swept(
    access: &ThreadAccess,
    first_touch: Option<ThreadIdx>,
    page_bytes: u64,
    line_bytes: u64,
) -> ThreadAccess {
    if first_touch != Some(access.thread) {
        return *access;
    }
    let sweep = access.writes.min(page_bytes / SMALL_WORD);
    let misses = sweep.div_ceil((line_bytes / WORD).max(1));
    ThreadAccess {
        writes: access.writes - sweep + misses,
        ..*access
    }
}

/// A thread's accesses reduced to `total`, with loads and stores in proportion.
fn cut(access: &ThreadAccess, total: u64) -> ThreadAccess {
    let writes = u128::from(access.writes) * u128::from(total) / u128::from(access.total().max(1));
    ThreadAccess {
        thread: access.thread,
        reads: total - writes as u64,
        writes: writes as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::tests::usage_of;
    use proptest::prelude::*;

    fn totals(usage: &PageUsage) -> Vec<Vec<(u32, u64)>> {
        let of = |a: &ThreadAccess| (a.thread.0, a.total());
        let pages = usage.pages().iter();
        pages
            .map(|page| usage.accesses(page).iter().map(of).collect())
            .collect()
    }

    #[test]
    fn hot_pages_stay_and_lines_written_by_others_do_not() {
        // 64 lines a page. A third of the accesses are stores. Pages 0 and 1 are thread 0's alone; of page 2 thread 1
        // stores 1000, so thread 0 misses at most 64 + 1000 there, and thread 1, of whose 3000 thread 0 stores 2000,
        // 2064.
        let usage = usage_of(&[(9, vec![9000]), (9, vec![600]), (9, vec![6000, 3000])]);
        // Everything fits.
        let beyond = beyond_private_caches(&usage, &[], 2, 1 << 20, 64);
        assert_eq!(
            totals(&beyond),
            [vec![(0, 64)], vec![(0, 64)], vec![(0, 1064), (1, 2064)]]
        );
        // Thread 0's three pages do not fit into two, and none is used four times as often as the middle one. Thread
        // 1's does.
        let beyond = beyond_private_caches(&usage, &[], 2, 8192, 64);
        assert_eq!(
            totals(&beyond),
            [vec![(0, 9000)], vec![(0, 600)], vec![(0, 6000), (1, 2064)]]
        );
        // A stack among pages that are read through once.
        let mut pages = vec![(9, vec![100_000])];
        pages.extend(vec![(9, vec![600]); 9]);
        let beyond = beyond_private_caches(&usage_of(&pages), &[], 1, 8192, 64);
        assert_eq!(totals(&beyond)[..2], [vec![(0, 64)], vec![(0, 600)]]);
        // Without room nothing stays.
        let beyond = beyond_private_caches(&usage, &[], 2, 0, 64);
        assert_eq!(totals(&beyond), totals(&usage));
    }

    #[test]
    fn initialisation_is_counted_by_lines() {
        // Thread 0 touched the page first and stored 500 of its 1500: 63 lines. Thread 1's 500 stores stand.
        let usage = usage_of(&[(0, vec![1500, 1500])]);
        let beyond = beyond_private_caches(&usage, &[], 2, 0, 64);
        assert_eq!(totals(&beyond), [[(0, 1063), (1, 1500)]]);
    }

    proptest! {
        #[test]
        fn never_more_than_there_were(
            pages in proptest::collection::vec((0u32..4, proptest::collection::vec(0u64..5000, 4)), 0..12),
            room in 0u64..6,
        ) {
            let usage = usage_of(&pages);
            let beyond = beyond_private_caches(&usage, &[], 4, room * 4096, 64);
            prop_assert_eq!(beyond.pages().len(), usage.pages().len());
            for (all, beyond) in totals(&usage).iter().flatten().zip(totals(&beyond).iter().flatten()) {
                prop_assert!(beyond.0 == all.0 && beyond.1 <= all.1 && beyond.1 >= (all.1 / 8).min(64));
            }
        }
    }
}
