//! Samples of accesses with the interval between two synchronisations in which they were made: what the recorder needs
//! to know which lines threads would contend for if they ran at the same time, however the host ran them.
//!
//! The samples are the accesses of the program that end quanta ([`super::sites`]), and separately of all atomic
//! instructions each of the first [`ALL_ATOMICS`], then every [`ATOMICS`]th. An interval has the word at which it
//! began, and whether it ended there: that shows the critical sections of a lock (`numaloc_assemble`, `contention`).
//!
//! A thread that creates others takes a lock of the C library, and with it the clock of a thread that has ended
//! meanwhile, if the host ran that one first. The next threads would begin later for this reason alone; the times of
//! their first intervals are corrected for it, unless the creator waited for the other's end.

use numaloc_journal::{AccessKind, AccessSample, Record};

use super::ThreadTracer;
use crate::sites;

/// Atomic instructions of a thread that are all sampled.
const ALL_ATOMICS: u64 = 256;
/// Distance of sampled atomic instructions after that: a prime, as programs repeat themselves.
const ATOMICS: u64 = 61;
/// Accesses of a thread between two creations of one loop, at most.
const CREATES_WITHIN: u64 = 16_384;
/// Accesses in which a thread begins, with synchronisations of the run-time system.
const BEGINS_WITHIN: u64 = 1024;
/// Most samples of a thread that are not in the journal.
const SAMPLES: usize = 512;

/// A thread's samples that are not in the journal, and its present interval.
pub(super) struct Contention {
    /// Time of the last synchronisation.
    since: u64,
    /// The word of the last synchronisation, 0 before the first.
    guard: u64,
    /// Whether the thread has stored to it an odd number of times since it synchronised elsewhere.
    odd: bool,
    /// Samples at the end of `samples` whose interval has not ended.
    open: usize,
    samples: Vec<AccessSample>,
    /// The thread's beginning.
    begin: u64,
    /// What the host's order of threads has added to `begin`: samples of the first interval are that much earlier.
    lag: u64,
    /// Accesses at the last creation of a thread, and what such an order has added to the clock from then on.
    created: Option<(u64, u64)>,
    /// Atomic instructions up to the next sample.
    due: u64,
    /// Distance of this sample from the one before.
    distance: u64,
    /// Sampled atomic instructions.
    atomics: u64,
    /// The store of an atomic instruction is being recorded.
    pub within_atomic: bool,
    /// The load of an atomic instruction is being recorded.
    pub loads_atomically: bool,
}

impl Contention {
    /// No samples, of a thread that begins at `now`.
    pub fn new(now: u64) -> Self {
        Self {
            since: now,
            guard: 0,
            odd: false,
            open: 0,
            samples: Vec::new(),
            begin: now,
            lag: 0,
            created: None,
            due: 1,
            distance: 1,
            atomics: 0,
            within_atomic: false,
            loads_atomically: false,
        }
    }

    /// The thread began this much later than it would have if its creator had not taken the clock of another thread
    /// that it did not wait for.
    pub fn lags_by(&mut self, lag: u64) {
        self.lag = lag;
    }

    /// The clock moves forward, because the thread waited for the end of another one (`joins`), or took a lock.
    pub fn moves_forward(&mut self, by: u64, joins: bool) {
        match (&mut self.created, joins) {
            (created, true) => *created = None,
            (Some((_, lag)), false) => *lag += by,
            (None, false) => {}
        }
    }

    /// Whether the clock may move forward, after this many accesses, without [`Contention::moves_forward`]: no thread
    /// was created lately.
    #[inline(always)]
    pub fn may_move(&self, accesses: u64) -> bool {
        self.created
            .is_none_or(|(before, _)| accesses - before >= CREATES_WITHIN)
    }

    /// Creates a thread after `accesses`; returns by how much it lags.
    fn creates(&mut self, accesses: u64) -> u64 {
        let lag = match self.created {
            Some((before, lag)) if accesses - before < CREATES_WITHIN => lag,
            _ => 0,
        };
        self.created = Some((accesses, lag));
        lag
    }

    /// How much earlier the samples of this interval are: it is the first, apart from those in which a thread begins.
    fn shift(&self) -> u64 {
        match self.since - self.begin < BEGINS_WITHIN {
            true => self.lag,
            false => 0,
        }
    }

    /// Whether the end of the interval changes a sample.
    #[inline(always)]
    pub fn is_open(&self) -> bool {
        self.open > 0
    }

    /// Whether the next atomic instruction is to be sampled.
    #[inline(always)]
    pub fn is_atomic_due(&self) -> bool {
        self.due <= 1
    }

    /// Counts an atomic instruction that is not sampled.
    #[inline(always)]
    pub fn pass_atomic(&mut self) {
        self.due -= 1;
    }

    /// Begins an interval at `now`, with nothing open: the thread has read `word`.
    #[inline(always)]
    pub fn acquired(&mut self, word: u64, now: u64) {
        if self.guard != word {
            self.guard = word;
            self.odd = false;
        }
        self.since = now;
    }

    /// The same after a store to `word`.
    #[inline(always)]
    pub fn released(&mut self, word: u64, now: u64) {
        self.odd = self.guard == word && !self.odd;
        self.guard = word;
        self.since = now;
    }

    /// Ends the interval of the open samples at `now`, at `word`.
    #[inline(always)]
    pub fn close(&mut self, word: u64, now: u64) {
        if self.open > 0 {
            self.close_open(word, now);
        }
    }

    #[cold]
    #[inline(never)]
    fn close_open(&mut self, word: u64, now: u64) {
        let first = self.samples.len() - self.open;
        let shift = self.shift();
        for sample in &mut self.samples[first..] {
            sample.until = now.saturating_sub(shift).max(sample.time);
            sample.closed = word != 0 && sample.guard == word;
        }
        self.open = 0;
    }

    /// Adds a sample of this interval.
    fn add(&mut self, sample: AccessSample) {
        self.samples.push(sample);
        if sample.kind != AccessKind::Atomic {
            self.open += 1;
        } else {
            // Its interval ends with it: those of others are not at the end any more.
            self.open = 0;
        }
    }

    /// The accesses for which the atomic instruction that is due stands.
    fn take_atomic(&mut self) -> u64 {
        let amount = self.distance;
        self.atomics += 1;
        self.distance = match self.atomics < ALL_ATOMICS {
            true => 1,
            false => ATOMICS,
        };
        self.due = self.distance;
        amount
    }

    /// Takes the samples; the present interval of those that are open counts up to `now`.
    fn take(&mut self, now: u64) -> Vec<AccessSample> {
        self.close(0, now);
        std::mem::take(&mut self.samples)
    }
}

impl ThreadTracer {
    /// Adds a sample of an access to those of the interval.
    pub(super) fn sample_contention(
        &mut self,
        kind: AccessKind,
        address: u64,
        size: u32,
        amount: u64,
    ) {
        let contention = &self.contention;
        // Atomic instructions have samples of their own.
        if kind == AccessKind::Store && contention.within_atomic
            || kind == AccessKind::Load && contention.loads_atomically
        {
            return;
        }
        let shift = contention.shift();
        let now = self.time().saturating_sub(shift);
        let sample = AccessSample {
            address,
            size: size.min(255) as u8,
            kind,
            time: now,
            accesses: self.clock.accesses + self.clock.spent(self.fast.remaining),
            since: contention.since.saturating_sub(shift).min(now),
            until: now,
            guard: contention.guard,
            odd: contention.odd,
            closed: false,
            place: sites::resolve(self.sites.here),
            amount: amount.max(1),
        };
        self.contention.add(sample);
        if self.contention.samples.len() >= SAMPLES {
            self.flush_contention();
        }
    }

    /// Creates a thread; returns by how much that lags.
    pub(super) fn creates(&mut self) -> u64 {
        let accesses = self.clock.accesses + self.clock.spent(self.fast.remaining);
        self.contention.creates(accesses)
    }

    /// Counts an atomic instruction's store, and samples it if it is due.
    #[inline(always)]
    pub(super) fn count_atomic(&mut self, address: u64, size: u32) {
        if self.contention.is_atomic_due() {
            let amount = self.contention.take_atomic();
            self.sample_contention(AccessKind::Atomic, address, size, amount);
        } else {
            self.contention.pass_atomic();
        }
    }

    /// Writes the samples.
    pub(super) fn flush_contention(&mut self) {
        let cells = self.contention.take(self.time());
        if !cells.is_empty() {
            let thread = self.number;
            Record::Accesses { thread, cells }.encode(&mut self.journal.out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(kind: AccessKind, time: u64, of: &Contention) -> AccessSample {
        AccessSample {
            address: 64,
            size: 8,
            kind,
            time,
            accesses: time,
            since: of.since,
            until: time,
            guard: of.guard,
            odd: of.odd,
            closed: false,
            place: 0,
            amount: 1,
        }
    }

    #[test]
    fn intervals_of_a_critical_section_begin_and_end_at_its_lock() {
        // A lock that is taken and left by atomic instructions: each loads and stores the word.
        let mut of = Contention::new(5);
        let exchange = |of: &mut Contention, word, now| {
            of.close(word, now);
            of.acquired(word, now);
            of.close(word, now);
            of.released(word, now);
        };
        for round in 0..3 {
            let now = 100 * round + 10;
            exchange(&mut of, 0x40, now);
            let inside = sample(AccessKind::Store, now + 2, &of);
            of.add(inside);
            exchange(&mut of, 0x40, now + 7);
            let outside = sample(AccessKind::Load, now + 9, &of);
            of.add(outside);
        }
        let found: Vec<_> = of
            .take(999)
            .iter()
            .map(|s| (s.since, s.until, s.odd, s.closed))
            .collect();
        assert_eq!(found[..2], [(10, 17, true, true), (17, 110, false, true)]);
        assert_eq!(
            found[4..],
            [(210, 217, true, true), (217, 999, false, false)]
        );
        // Another word begins again.
        of.acquired(0x80, 1000);
        assert!((of.guard, of.odd, of.since) == (0x80, false, 1000) && !of.is_open());
    }

    #[test]
    fn atomic_instructions_are_sampled_by_themselves() {
        let mut of = Contention::new(0);
        let mut stood_for = 0;
        for _ in 0..ALL_ATOMICS + 2 * ATOMICS {
            match of.is_atomic_due() {
                true => stood_for += of.take_atomic(),
                false => of.pass_atomic(),
            }
        }
        assert_eq!(stood_for, ALL_ATOMICS + 2 * ATOMICS);
    }
}
