//! A model of shared last-level caches, fed with the misses of private caches: which accesses reach memory.
//!
//! Provides DeLoc's DRAM-to-memory ratio (eq. 7) without hardware counters. The access trace holds the requests that
//! missed each thread's own two cache levels; here last-level caches serve some of them, other threads' caches some,
//! and DRAM the rest. Deviation from the paper, which read a performance counter: this is a model, and its parameters
//! are part of the result.
//!
//! Last-level caches are set-associative with LRU, receive every line that is fetched or written back through them, and
//! do not evict lines from private caches (non-inclusive). Each thread uses one of them. A line that another thread has
//! written and still holds comes from that thread; so does one that only another last-level cache holds in a written
//! state. A write invalidates the line in the other last-level caches. Not modelled: prefetching (which moves fetches
//! but, where correct, does not change their number), huge pages, timing.
//!
//! Cost: O(1) for each event, times ways / 16; memory: about 18 bytes per line of the last-level caches, the lines that
//! private caches hold written, and the pages' counts.

use std::collections::HashMap;

use numaloc_cache_model::Cache;
use numaloc_model::ThreadIdx;
use numaloc_model::trace::{Action, Event};

/// The last-level caches of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastLevel {
    /// Bytes of each.
    pub bytes: u64,
    /// Lines in a set.
    pub ways: u64,
    /// Number of caches; threads share them in blocks, as in [`crate::NodeAssignment::blocks`].
    pub count: usize,
}

/// Outcome of the requests of a thread's private caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Hits in the thread's own last-level cache.
    pub llc_hits: u64,
    /// Lines newer than memory from another thread's cache or another last-level cache.
    pub transfers: u64,
    /// Lines read from DRAM.
    pub fetches: u64,
    /// Lines written by this thread and written back to DRAM.
    pub write_backs: u64,
}

impl Requests {
    /// Lines requested.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.llc_hits + self.transfers + self.fetches
    }
}

/// Requests that reached DRAM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DramUse {
    /// By [`ThreadIdx`].
    pub threads: Vec<Requests>,
    /// Page, thread, lines read from DRAM; by page, then thread.
    pub pages: Vec<(u64, ThreadIdx, u64)>,
    /// Page, thread, loads that missed the thread's own caches, the last-level one included; by page, then thread.
    pub missed_loads: Vec<(u64, ThreadIdx, u64)>,
}

/// The model: pass it every event in the order of [`Event::time`], then take the result.
pub struct DramModel {
    /// Values: the thread that wrote the line plus one, or 0 if memory is up to date.
    caches: Vec<Cache<u32>>,
    /// Cache of each thread.
    of_thread: Vec<usize>,
    /// Lines per page.
    page_lines: u64,
    /// The thread whose private caches hold a line written.
    written: HashMap<u64, ThreadIdx>,
    threads: Vec<Requests>,
    pages: HashMap<(u64, ThreadIdx), u64>,
    missed_loads: HashMap<(u64, ThreadIdx), u64>,
}

impl DramModel {
    /// Creates the model for `threads` threads; sizes in bytes, the page size a multiple of the line size.
    ///
    /// # Panics
    /// If there is no cache, or one without a line.
    #[must_use]
    pub fn new(level: LastLevel, threads: usize, line_size: u64, page_size: u64) -> Self {
        let sets = level.bytes / line_size / level.ways;
        assert!(
            sets > 0 && level.count > 0,
            "a last-level cache needs at least one line"
        );
        Self {
            caches: (0..level.count)
                .map(|_| Cache::new(sets, level.ways))
                .collect(),
            of_thread: (0..threads).map(|t| t * level.count / threads).collect(),
            page_lines: (page_size / line_size).max(1),
            written: HashMap::new(),
            threads: vec![Requests::default(); threads],
            pages: HashMap::new(),
            missed_loads: HashMap::new(),
        }
    }

    /// Processes the next event.
    ///
    /// # Panics
    /// If the thread is not below the number given.
    pub fn take(&mut self, thread: ThreadIdx, event: &Event) {
        match event.action {
            Action::Read(line) => {
                if !self.fetch(thread, line) {
                    let key = (line / self.page_lines, thread);
                    *self.missed_loads.entry(key).or_default() += 1;
                }
            }
            Action::Write(line) => {
                self.fetch(thread, line);
                self.own(thread, line);
            }
            Action::Own(line) => self.own(thread, line),
            Action::WriteBack(line) => {
                if self.written.get(&line) == Some(&thread) {
                    self.written.remove(&line);
                }
                self.put(self.of_thread[thread.index()], line, thread.0 + 1);
            }
            Action::Acquire(_)
            | Action::Release(_)
            | Action::Create(_)
            | Action::Omitted(_)
            | Action::Part(_)
            | Action::End => {}
        }
    }

    /// Brings a line to a thread's private caches. Returns whether its last-level cache had it.
    fn fetch(&mut self, thread: ThreadIdx, line: u64) -> bool {
        let mine = self.of_thread[thread.index()];
        let find = |cache: &mut Cache<u32>| cache.find(cache.place(line)).map(|slot| cache[slot]);
        let elsewhere = |(at, cache): (usize, &mut Cache<u32>)| {
            at != mine && find(cache).is_some_and(|writer| writer != 0)
        };
        if let Some(&owner) = self.written.get(&line)
            && owner != thread
        {
            // Its owner now has a clean copy; the written data is in its last-level cache.
            self.written.remove(&line);
            self.put(self.of_thread[owner.index()], line, owner.0 + 1);
            self.threads[thread.index()].transfers += 1;
        } else if find(&mut self.caches[mine]).is_some() {
            self.threads[thread.index()].llc_hits += 1;
            return true;
        } else if self.caches.iter_mut().enumerate().any(elsewhere) {
            self.threads[thread.index()].transfers += 1;
        } else {
            self.threads[thread.index()].fetches += 1;
            *self
                .pages
                .entry((line / self.page_lines, thread))
                .or_default() += 1;
        }
        self.put(mine, line, 0);
        false
    }

    /// Makes a thread the only holder of a line.
    fn own(&mut self, thread: ThreadIdx, line: u64) {
        let mine = self.of_thread[thread.index()];
        for cache in self
            .caches
            .iter_mut()
            .enumerate()
            .filter(|(at, _)| *at != mine)
        {
            // Data there that is newer than memory has moved to the thread.
            cache.1.remove(line);
        }
        self.written.insert(line, thread);
    }

    /// Puts a line into a cache, or records its use there; `writer` 0 leaves the writer of a cached line.
    fn put(&mut self, cache: usize, number: u64, writer: u32) {
        let cache = &mut self.caches[cache];
        let place = cache.place(number);
        if let Some(slot) = cache.find(place) {
            if writer != 0 {
                cache[slot] = writer;
            }
            return;
        }
        let (slot, evicted) = cache.insert(place);
        cache[slot] = writer;
        if let Some((_, writer)) = evicted
            && writer != 0
        {
            self.threads[writer as usize - 1].write_backs += 1;
        }
    }

    /// The result. Lines that are still written in caches at the end are not counted.
    #[must_use]
    pub fn finish(self) -> DramUse {
        let sorted = |counts: HashMap<(u64, ThreadIdx), u64>| {
            let rows = counts.into_iter();
            let mut rows: Vec<_> = rows.map(|((page, thread), n)| (page, thread, n)).collect();
            rows.sort_unstable();
            rows
        };
        DramUse {
            threads: self.threads,
            pages: sorted(self.pages),
            missed_loads: sorted(self.missed_loads),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(level: LastLevel, threads: usize, events: &[(u32, Action)]) -> DramUse {
        let mut model = DramModel::new(level, threads, 64, 4096);
        for (time, &(thread, action)) in events.iter().enumerate() {
            let event = Event {
                time: time as u64,
                work: 1,
                action,
                after: 0,
            };
            model.take(ThreadIdx(thread), &event);
        }
        model.finish()
    }

    /// Two caches of 2 sets of 2 ways; threads 0 and 1 use the first, 2 and 3 the second.
    const SMALL: LastLevel = LastLevel {
        bytes: 256,
        ways: 2,
        count: 2,
    };

    #[test]
    fn four_threads_and_two_caches_by_hand() {
        use Action::{Own, Read, Write, WriteBack};
        let found = run(
            SMALL,
            4,
            &[
                (0, Read(0)),      // from DRAM, into the first cache
                (1, Read(0)),      // found there
                (2, Read(0)),      // the second cache does not have it, memory does: DRAM
                (0, Own(0)),       // leaves the second cache
                (2, Read(0)), // 0 holds it written: transfer; 0's value is in the first cache, written
                (3, Read(0)), // found in the second
                (1, Write(2)), // DRAM; set 0 of the first cache: 2, 0
                (1, WriteBack(2)), // written in the first cache
                (3, Read(2)), // only the first cache has it, newer than memory: transfer
                (0, Read(4)), // DRAM; set 0 is full: 0 leaves, written by 0: DRAM is written
                (0, Read(128)), // page 2: DRAM; 2 leaves, written by 1
            ],
        );
        let requests = |llc_hits, transfers, fetches, write_backs| Requests {
            llc_hits,
            transfers,
            fetches,
            write_backs,
        };
        assert_eq!(
            found.threads,
            [
                requests(0, 0, 3, 1),
                requests(1, 0, 1, 1),
                requests(0, 1, 1, 0),
                requests(1, 1, 0, 0),
            ]
        );
        let page = |page, thread, fetches| (page, ThreadIdx(thread), fetches);
        assert_eq!(
            found.pages,
            [page(0, 0, 2), page(0, 1, 1), page(0, 2, 1), page(2, 0, 1)]
        );
        // Neither the write of thread 1 nor hits in the thread's own last-level cache; transfers count, because they
        // are slow too.
        assert_eq!(
            found.missed_loads,
            [page(0, 0, 2), page(0, 2, 2), page(0, 3, 1), page(2, 0, 1)]
        );
    }

    #[test]
    fn a_stream_larger_than_the_cache_misses_every_line_twice_over() {
        let level = LastLevel {
            bytes: 64 << 10,
            ways: 16,
            count: 1,
        };
        let pass = |lines: u64| (0..2 * lines).map(move |at| (0, Action::Read(at % lines)));
        let fetches = |lines| run(level, 1, &pass(lines).collect::<Vec<_>>()).threads[0].fetches;
        assert_eq!(fetches(1024), 1024);
        assert_eq!(fetches(2048), 4096);
    }

    fn any_events() -> impl Strategy<Value = Vec<(u32, Action)>> {
        let action = (0u64..40, 0usize..4).prop_map(|(line, kind)| match kind {
            0 => Action::Read(line),
            1 => Action::Write(line),
            2 => Action::Own(line),
            _ => Action::WriteBack(line),
        });
        proptest::collection::vec((0u32..4, action), 0..300)
    }

    proptest! {
        /// Each requested line is served from one place; pages add up to threads.
        #[test]
        fn nothing_is_lost(events in any_events(), count in 1usize..5) {
            let found = run(LastLevel { count, ..SMALL }, 4, &events);
            for thread in 0..4u32 {
                let asked = events.iter().filter(|(t, a)| *t == thread && matches!(a, Action::Read(_) | Action::Write(_)));
                let requests = found.threads[thread as usize];
                prop_assert_eq!(requests.lines(), asked.count() as u64);
                let of_pages: u64 = found.pages.iter().filter(|p| p.1.0 == thread).map(|p| p.2).sum();
                prop_assert_eq!(of_pages, requests.fetches);
            }
        }

        /// LRU: more ways in the same sets never fetch more.
        #[test]
        fn a_larger_cache_fetches_no_more(events in any_events()) {
            let fetches = |ways| {
                let found = run(LastLevel { bytes: 128 * ways, ways, count: 1 }, 4, &events);
                found.threads.iter().map(|t| t.fetches).sum::<u64>()
            };
            prop_assert!(fetches(4) <= fetches(2) && fetches(2) <= fetches(1));
        }

        /// Thread numbers do not matter if all share one cache.
        #[test]
        fn names_do_not_matter(events in any_events()) {
            let one = LastLevel { count: 1, ..SMALL };
            let found = run(one, 4, &events);
            let renamed: Vec<_> = events.iter().map(|&(t, a)| (3 - t, a)).collect();
            let mut other = run(one, 4, &renamed).threads;
            other.reverse();
            prop_assert_eq!(found.threads, other);
        }
    }
}
