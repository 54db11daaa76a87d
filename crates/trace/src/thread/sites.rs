//! Code sites: a sample of the instructions that communicate, and of those that access memory.
//!
//! Which events and accesses are sampled depends on their number in the thread, not on time:
//!
//! | what | the first | later |
//! |---|---|---|
//! | events of layer `write_read` | each of [`ALL_EVENTS`] | every [`EVENTS`]th |
//! | accesses of the program, at the end of a quantum | 128, 61 apart | less often ([`DISTANCES`]), at last 65,521 apart |
//!
//! Each sample has the number of events, or accesses, since the one before, for which it stands; a quantum that ends in
//! the code of a run-time library is no sample, and its accesses count for none. Samples with the same
//! places, page and other thread are one cell; at most [`CELLS`] are kept before they are written to the journal.

use std::collections::BTreeMap;

use numaloc_journal::{AccessKind, Record, SiteCount, SiteKind};

use super::ThreadTracer;
use crate::line;
use crate::pages::PAGE_SHIFT;
use crate::sites;

/// Events of a thread that are all sampled.
const ALL_EVENTS: u64 = 256;
/// Distance of sampled events after that: a prime, as programs repeat themselves.
const EVENTS: u64 = 61;
/// Sampled accesses of a thread, and from then on the distance to the next: primes, as programs repeat themselves. What
/// a sample costs stays below some per cent of the accesses for which it stands.
const DISTANCES: [(u64, u64); 6] = [
    (0, 61),
    (128, 251),
    (384, 1021),
    (1408, 4093),
    (2432, 16_381),
    (3456, 65_521),
];
/// Most cells of a thread that are not in the journal.
const CELLS: usize = 512;

/// Kind, other thread, page, place here and place of the other thread.
type Key = (SiteKind, u32, u64, u64, u64);

/// A thread's samples that are not in the journal, and when the next ones are due.
pub(super) struct Sites {
    /// Place of the access being recorded; 0 if unknown.
    pub here: u64,
    /// Events up to the next sample.
    pub until: u64,
    /// Distance of this sample from the one before.
    distance: u64,
    /// Sampled events.
    events: u64,
    /// Distance of sampled accesses.
    accesses: u64,
    /// Sampled accesses.
    sampled: u64,
    /// Accesses of the thread up to the last one.
    last: u64,
    /// Number of samples, and what they stand for.
    cells: BTreeMap<Key, (u64, u64)>,
}

impl Sites {
    /// No samples.
    pub fn new() -> Self {
        Self {
            here: 0,
            until: 1,
            distance: 1,
            events: 0,
            accesses: DISTANCES[0].1,
            sampled: 0,
            last: 0,
            cells: BTreeMap::new(),
        }
    }

    fn add(&mut self, key: Key, amount: u64) {
        let cell = self.cells.entry(key).or_default();
        cell.0 += 1;
        cell.1 += amount;
    }

    /// Adds the event that is due.
    fn add_event(&mut self, key: Key) {
        self.add(key, self.distance);
        self.events += 1;
        self.distance = match self.events < ALL_EVENTS {
            true => 1,
            false => EVENTS,
        };
        self.until = self.distance;
    }

    /// Accesses up to the next one to be sampled, of a thread that has made `accesses`; the whole distance if one was
    /// missed.
    pub fn due_in(&self, accesses: u64) -> u64 {
        let due = (self.last + self.accesses).checked_sub(accesses);
        due.filter(|&due| due > 0).unwrap_or(self.accesses)
    }

    /// Whether an access that ends a quantum is to be sampled: the thread has made `accesses` so far.
    fn is_access_due(&self, accesses: u64) -> bool {
        accesses - self.last >= self.accesses
    }

    /// Adds the access that is due.
    fn add_access(&mut self, key: Key, accesses: u64) {
        let amount = accesses - self.last;
        self.add(key, amount);
        self.last = accesses;
        self.sampled += 1;
        let passed = DISTANCES.iter().rfind(|(from, _)| *from <= self.sampled);
        self.accesses = passed.map_or(self.accesses, |&(_, distance)| distance);
    }

    fn is_full(&self) -> bool {
        self.cells.len() >= CELLS
    }

    /// Takes the cells, ascending.
    fn take(&mut self) -> Vec<SiteCount> {
        let cells = std::mem::take(&mut self.cells).into_iter();
        cells
            .map(
                |((kind, other, page, place, other_place), (samples, amount))| SiteCount {
                    kind,
                    other,
                    page,
                    place,
                    other_place,
                    samples,
                    amount,
                },
            )
            .collect()
    }
}

impl ThreadTracer {
    /// Sets the place of the accesses that are recorded next: an address in the program's code, or what the frontend's
    /// resolver turns into one ([`crate::sites::set_resolver`]); 0 if unknown.
    #[inline(always)]
    pub fn set_place(&mut self, place: u64) {
        self.sites.here = place;
    }

    /// Sets the place of the accesses that are recorded next, if the block has it.
    #[inline(always)]
    pub(super) fn set_known_place(&mut self, place: u64) {
        if place != 0 {
            self.sites.here = place;
        }
    }

    /// Keeps the place of the store being recorded, by which the thread takes the line at `address`.
    #[inline(always)]
    pub(super) fn keep_store(&mut self, address: u64) {
        let line = address >> self.lines.shift();
        let writer = line::writer(self.fast.owned);
        self.engine
            .tables
            .stores
            .keep(line, writer, self.sites.here);
    }

    /// Counts an event for the sample: this thread has read at `address` what `writer` wrote.
    #[inline(always)]
    pub(super) fn pass_event(&mut self, writer: u32, address: u64) {
        self.sites.until -= 1;
        if self.sites.until == 0 {
            self.sample_event(writer, address);
        }
    }

    #[cold]
    #[inline(never)]
    fn sample_event(&mut self, writer: u32, address: u64) {
        let line = address >> self.lines.shift();
        let stored = self.engine.tables.stores.of(line, writer);
        let key = (
            SiteKind::Communication,
            writer - 1,
            address >> PAGE_SHIFT,
            sites::resolve(self.sites.here),
            sites::resolve(stored),
        );
        self.sites.add_event(key);
        self.flush_full_sites();
    }

    /// Samples an access that has ended a quantum, if one is due.
    #[cold]
    #[inline(never)]
    pub(super) fn sample_access<const WRITE: bool, const RUNTIME: bool>(
        &mut self,
        address: u64,
        size: u32,
    ) {
        let accesses = self.clock.accesses + self.clock.spent(self.fast.remaining);
        if !self.sites.is_access_due(accesses) {
            return;
        }
        if RUNTIME {
            // These accesses belong to no code of the program.
            self.sites.last = accesses;
            return;
        }
        let (kind, access) = match WRITE {
            true => (SiteKind::Store, AccessKind::Store),
            false => (SiteKind::Load, AccessKind::Load),
        };
        self.sample_contention(access, address, size, accesses - self.sites.last);
        let place = sites::resolve(self.sites.here);
        let key = (kind, self.number, address >> PAGE_SHIFT, place, 0);
        self.sites.add_access(key, accesses);
        self.flush_full_sites();
    }

    fn flush_full_sites(&mut self) {
        if self.sites.is_full() {
            self.flush_sites();
        }
    }

    /// Writes the samples.
    pub(super) fn flush_sites(&mut self) {
        self.flush_contention();
        let cells = self.sites.take();
        if !cells.is_empty() {
            let thread = self.number;
            Record::Sites { thread, cells }.encode(&mut self.journal.out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = (SiteKind::Communication, 1, 2, 3, 4);

    #[test]
    fn each_sample_stands_for_the_events_since_the_one_before() {
        let mut sites = Sites::new();
        let mut sampled = Vec::new();
        for event in 1..=ALL_EVENTS + 3 * EVENTS + 7 {
            sites.until -= 1;
            if sites.until == 0 {
                sites.add_event(KEY);
                sampled.push(event);
            }
        }
        assert_eq!(sampled.len() as u64, ALL_EVENTS + 3);
        assert_eq!(sampled[255..], [256, 317, 378, 439]);
        let cells = sites.take();
        assert_eq!((cells[0].samples, cells[0].amount), (259, 439));
        assert!(sites.take().is_empty());
    }

    #[test]
    fn accesses_are_sampled_further_apart_after_some() {
        let mut sites = Sites::new();
        let (_, short) = DISTANCES[0];
        assert!(!sites.is_access_due(short - 1) && sites.is_access_due(short));
        assert_eq!((sites.due_in(21), sites.due_in(short)), (short - 21, short));
        let (few, most) = DISTANCES[DISTANCES.len() - 1];
        for sample in 1..=few {
            sites.add_access(KEY, sample * 2000);
        }
        let last = few * 2000;
        assert!(!sites.is_access_due(last + 2000) && sites.is_access_due(last + most));
        let cells = sites.take();
        assert_eq!((cells[0].samples, cells[0].amount), (few, last));
    }

    #[test]
    fn the_number_of_cells_is_limited() {
        let mut sites = Sites::new();
        for page in 0..CELLS as u64 {
            assert!(!sites.is_full());
            sites.add((SiteKind::Load, 0, page, 7, 0), 1);
        }
        assert!(sites.is_full());
    }
}
