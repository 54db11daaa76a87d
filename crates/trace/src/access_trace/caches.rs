//! The private caches of a thread. Their hits do not depend on where threads and pages are, so only what misses them
//! is recorded.
//!
//! Two levels, write-back, write-allocate, true LRU in each set; the second includes the first. A line that another
//! thread has written since it was fetched is a miss. The directory has one word for each line: a version, raised
//! whenever a thread becomes the line's writer, and the writer, cleared when another thread reads. A cached line is
//! valid while its version equals the directory's; a thread writes without a record while it is the writer. This is
//! MESI, as seen from one cache.
//!
//! Two threads that use one line at the same moment may miss each other's change; a machine could choose that order
//! too. Not modelled: prefetching, instruction fetches, and two threads that share a core.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use numaloc_access_trace::Kind;
use numaloc_access_trace::message::CacheSize;
use numaloc_cache_model::Cache;

use crate::shadow::{Shadow, prefetch};

/// Low bits of a directory word: the writer, 0 for none. The version is above.
const WRITER_BITS: u32 = 20;
const WRITER: u64 = (1 << WRITER_BITS) - 1;

/// State of a cached line: its version in the directory when it was fetched or written, and a low bit that is set if
/// it is dirty.
#[derive(Clone, Copy, Default)]
struct State(u64);

impl State {
    #[inline(always)]
    fn new(version: u64, dirty: bool) -> Self {
        Self(version << 1 | u64::from(dirty))
    }

    #[inline(always)]
    fn version(self) -> u64 {
        self.0 >> 1
    }

    #[inline(always)]
    fn is_dirty(self) -> bool {
        self.0 & 1 != 0
    }
}

/// A line of the caches. Packed, so that a line with its number and its place in the order of use takes 24 bytes.
#[derive(Clone, Copy, Default)]
#[repr(C, packed(4))]
struct Line {
    state: State,
    /// Index of its slot in the next level.
    below: u32,
}

/// Accesses by the level that answered them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Hits in the first level.
    pub l1_hits: u64,
    /// Hits in the second level.
    pub l2_hits: u64,
    /// Misses because another thread had written the line.
    pub coherence_misses: u64,
}

/// The caches of one thread.
pub struct PrivateCaches {
    l1: Cache<Line>,
    l2: Cache<Line>,
    directory: Shadow,
    me: u64,
    /// Counts since they were last taken.
    pub counts: Counts,
}

impl PrivateCaches {
    /// Empty caches of the thread with number `me`, from 1, in `directory`.
    #[must_use]
    pub fn new(l1: CacheSize, l2: CacheSize, directory: Shadow, me: u32) -> Self {
        let line = 1 << directory.shift();
        Self {
            l1: Cache::new(l1.sets(line), l1.ways),
            l2: Cache::new(l2.sets(line), l2.ways),
            directory,
            me: u64::from(me) & WRITER,
            counts: Counts::default(),
        }
    }

    fn word(&self, number: u64) -> &'static AtomicU64 {
        let word: *const AtomicU64 = self.directory.word(number << self.directory.shift());
        // SAFETY: a word of a table that is never unmapped.
        unsafe { &*word }
    }

    /// Loads from or stores to line `number`. Calls `record` for what goes beyond these caches, in order; returns
    /// whether they held the line.
    #[inline(always)]
    pub fn access<const WRITE: bool>(
        &mut self,
        number: u64,
        mut record: impl FnMut(Kind, u64),
    ) -> bool {
        let word = self.word(number);
        let place = self.l1.place(number);
        let Some(slot) = self.l1.newest(place).or_else(|| self.l1.find(place)) else {
            return self.further::<WRITE>(number, word, &mut record);
        };
        let state = self.l1[slot].state;
        let now = word.load(Relaxed);
        // The usual case: the line is valid, and for a store, this thread is the writer and the line is dirty already.
        if state.version() == now >> WRITER_BITS
            && (!WRITE || state.is_dirty() && now & WRITER == self.me)
        {
            self.counts.l1_hits += 1;
            return true;
        }
        let held = self.again::<WRITE>(number, slot, word, &mut record);
        self.counts.l1_hits += u64::from(held);
        held
    }

    /// Handles a miss of the first level.
    #[inline(never)]
    fn further<const WRITE: bool>(
        &mut self,
        number: u64,
        word: &AtomicU64,
        record: &mut impl FnMut(Kind, u64),
    ) -> bool {
        // The word is often far away, and needed last.
        prefetch(word);
        let place = self.l2.place(number);
        if let Some(below) = self.l2.find(place) {
            let slot = self.promote(number, below);
            self.l1[slot].state = self.l2[below].state;
            let held = self.again::<WRITE>(number, slot, word, record);
            self.counts.l2_hits += u64::from(held);
            return held;
        }
        record(if WRITE { Kind::Write } else { Kind::Read }, number);
        let (below, gone) = self.l2.insert(place);
        // A line evicted from the second level leaves the first too, where its state may be newer.
        let gone = gone.map(|(gone, line)| (gone, self.l1.remove(gone).unwrap_or(line).state));
        let written = gone.filter(|(_, state)| state.is_dirty());
        if let Some((gone, _)) = written {
            prefetch(self.word(gone));
        }
        let slot = self.promote(number, below);
        let mut now = word.load(Relaxed);
        self.take::<WRITE>(word, &mut now);
        let state = State::new(now >> WRITER_BITS, WRITE);
        self.l1[slot].state = state;
        self.l2[below].state = state;
        if let Some((gone, state)) = written {
            // If another thread has read or written it since, it was written back then.
            let mine = state.version() << WRITER_BITS | self.me;
            if self.word(gone).load(Relaxed) == mine {
                record(Kind::WriteBack, gone);
            }
        }
        false
    }

    /// Handles a line that the first level has, but possibly stale or not for writing; returns whether it was held.
    #[inline(never)]
    fn again<const WRITE: bool>(
        &mut self,
        number: u64,
        slot: usize,
        word: &AtomicU64,
        record: &mut impl FnMut(Kind, u64),
    ) -> bool {
        let state = self.l1[slot].state;
        let mut now = word.load(Relaxed);
        let held = state.version() == now >> WRITER_BITS;
        let was_dirty = held && state.is_dirty();
        let taken = self.take::<WRITE>(word, &mut now);
        let state = State::new(now >> WRITER_BITS, WRITE || was_dirty);
        self.l1[slot].state = state;
        if held {
            if WRITE && (taken || !was_dirty) {
                record(Kind::Own, number);
            }
            return true;
        }
        // The line is fetched again, into the same slots.
        self.counts.coherence_misses += 1;
        record(if WRITE { Kind::Write } else { Kind::Read }, number);
        let below = self.l1[slot].below as usize;
        self.l2.renew(self.l2.place(number), below);
        self.l2[below].state = state;
        false
    }

    /// Becomes the writer, or clears another writer; returns whether that changed the directory.
    #[inline(always)]
    fn take<const WRITE: bool>(&self, word: &AtomicU64, now: &mut u64) -> bool {
        loop {
            let writer = *now & WRITER;
            if writer == self.me || (!WRITE && writer == 0) {
                return false;
            }
            let new = if WRITE {
                ((*now >> WRITER_BITS) + 1) << WRITER_BITS | self.me
            } else {
                *now & !WRITER
            };
            match word.compare_exchange_weak(*now, new, Relaxed, Relaxed) {
                Ok(_) => {
                    *now = new;
                    return true;
                }
                Err(other) => *now = other,
            }
        }
    }

    /// Makes room in the first level for a line that the second has; the caller sets its state. The state of an
    /// evicted dirty line is copied to the second level; that of a clean one is there already.
    #[inline(always)]
    fn promote(&mut self, number: u64, below: usize) -> usize {
        let (slot, gone) = self.l1.insert(self.l1.place(number));
        self.l1[slot].below = below as u32;
        if let Some((_, gone)) = gone
            && gone.state.is_dirty()
        {
            self.l2[gone.below as usize].state = gone.state;
        }
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// 4 sets of 2 ways before 8 sets of 4.
    const L1: CacheSize = CacheSize {
        bytes: 512,
        ways: 2,
    };
    const L2: CacheSize = CacheSize {
        bytes: 2048,
        ways: 4,
    };

    fn machine(threads: u32) -> Vec<PrivateCaches> {
        of(Shadow::reserve(6).unwrap(), threads)
    }

    fn of(directory: Shadow, threads: u32) -> Vec<PrivateCaches> {
        directory.clear();
        (1..=threads)
            .map(|me| PrivateCaches::new(L1, L2, directory, me))
            .collect()
    }

    /// The records of an access.
    fn records(caches: &mut PrivateCaches, number: u64, write: bool) -> Vec<(Kind, u64)> {
        let mut records = Vec::new();
        let record = |kind, line| records.push((kind, line));
        if write {
            caches.access::<true>(number, record);
        } else {
            caches.access::<false>(number, record);
        }
        records
    }

    #[test]
    fn one_thread_by_hand() {
        let mut caches = machine(1);
        let one = &mut caches[0];
        // Lines 0, 8, 16, ... share a set of both levels; the second holds four of them, the first two.
        assert_eq!(records(one, 0, false), [(Kind::Read, 0)]);
        assert_eq!(records(one, 0, false), []);
        assert_eq!(records(one, 0, true), [(Kind::Own, 0)]);
        assert_eq!(records(one, 0, true), []);
        assert_eq!(records(one, 8, true), [(Kind::Write, 8)]);
        assert_eq!(records(one, 8, false), []);
        for line in [16, 24] {
            assert_eq!(records(one, line, false), [(Kind::Read, line)]);
        }
        // 0 and 8 were evicted from the first level dirty; the second answers and has kept their state.
        assert_eq!(records(one, 8, true), []);
        assert_eq!(
            one.counts,
            Counts {
                l1_hits: 4,
                l2_hits: 1,
                coherence_misses: 0
            }
        );
        // A fifth line: 0 is the least recent and goes back to memory; then 16, which was only read.
        assert_eq!(
            records(one, 32, false),
            [(Kind::Read, 32), (Kind::WriteBack, 0)]
        );
        assert_eq!(records(one, 40, false), [(Kind::Read, 40)]);
        assert_eq!(records(one, 0, true), [(Kind::Write, 0)]);
    }

    #[test]
    fn two_threads_by_hand() {
        let mut caches = machine(2);
        let [one, two] = &mut caches[..] else {
            unreachable!()
        };
        assert_eq!(records(one, 5, true), [(Kind::Write, 5)]);
        assert_eq!(records(two, 5, false), [(Kind::Read, 5)]);
        // Both have it. The writer records its write, and the other's copy is invalid.
        assert_eq!(records(one, 5, false), []);
        assert_eq!(records(one, 5, true), [(Kind::Own, 5)]);
        assert_eq!(records(two, 5, true), [(Kind::Write, 5)]);
        assert_eq!(two.counts.coherence_misses, 1);
        assert_eq!(records(two, 5, true), []);
        assert_eq!(records(one, 5, false), [(Kind::Read, 5)]);
        // Evicted from 2's cache without a write-back: 1's read has written it back.
        for line in [13, 21, 29, 37] {
            assert_eq!(records(two, line, false), [(Kind::Read, line)]);
        }
    }

    #[test]
    fn ping_pong_records_every_write() {
        let mut caches = machine(2);
        for round in 0..20 {
            assert_eq!(records(&mut caches[round % 2], 9, true), [(Kind::Write, 9)]);
        }
    }

    /// One thread: misses are those of a plain LRU stack of the second level behind another plain stack of the first;
    /// dirty lines that leave are written back.
    #[test]
    fn equals_two_plain_stacks() {
        let directory = Shadow::reserve(6).unwrap();
        proptest!(|(accesses in proptest::collection::vec((0u64..120, any::<bool>()), 1..600))| {
            let mut caches = of(directory, 1);
            let mut l1: Vec<Vec<u64>> = vec![Vec::new(); 4];
            let mut l2: Vec<Vec<u64>> = vec![Vec::new(); 8];
            let mut dirty = std::collections::BTreeSet::new();
            for (line, write) in accesses {
                let mut expected = Vec::new();
                let first = &mut l1[(line % 4) as usize];
                let second = &mut l2[(line % 8) as usize];
                let hit = if let Some(at) = first.iter().position(|&l| l == line) {
                    first.remove(at);
                    true
                } else if let Some(at) = second.iter().position(|&l| l == line) {
                    second.remove(at);
                    second.insert(0, line);
                    true
                } else {
                    expected.push((if write { Kind::Write } else { Kind::Read }, line));
                    second.insert(0, line);
                    if second.len() > 4 {
                        let gone = second.pop().unwrap();
                        if dirty.remove(&gone) {
                            expected.push((Kind::WriteBack, gone));
                        }
                        l1[(gone % 4) as usize].retain(|&l| l != gone);
                    }
                    false
                };
                let first = &mut l1[(line % 4) as usize];
                first.insert(0, line);
                first.truncate(2);
                if write && dirty.insert(line) && hit {
                    expected.push((Kind::Own, line));
                }
                prop_assert_eq!(records(&mut caches[0], line, write), expected);
            }
        });
    }

    /// Several threads: a read makes no record only if the thread has used the line since another thread wrote it; a
    /// write makes none only if no other thread has used it since this thread wrote it.
    #[test]
    fn no_hit_on_a_line_that_another_thread_changed() {
        let directory = Shadow::reserve(6).unwrap();
        proptest!(|(accesses in proptest::collection::vec((0usize..3, 0u64..6, any::<bool>()), 1..300))| {
            let mut caches = of(directory, 3);
            let mut log: Vec<(usize, u64, bool)> = Vec::new();
            for (thread, line, write) in accesses {
                let records = records(&mut caches[thread], line, write);
                let mut since = log.iter().rev().filter(|(_, l, _)| *l == line);
                if write {
                    // Six lines: nothing leaves these caches.
                    let silent = since.by_ref().take_while(|(t, ..)| *t == thread).any(|(.., w)| *w);
                    prop_assert_eq!(records.is_empty(), silent, "{:?}", records);
                } else {
                    let fresh = since.take_while(|(t, _, w)| *t == thread || !w).any(|(t, ..)| *t == thread);
                    prop_assert_eq!(records.is_empty(), fresh, "{:?}", records);
                }
                log.push((thread, line, write));
            }
        });
    }
}
