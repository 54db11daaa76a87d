//! Contention for cache lines under truly parallel execution, estimated from samples: pure.
//!
//! How often a line moves between caches depends on how the host ran the threads: on fewer processors than threads they
//! run one after the other, and a line moves once in a time slice. What threads do between synchronisations does not
//! depend on that. So the estimate takes from the recording only each thread's *visits* to the line, and lets threads
//! run at the same time wherever nothing orders them.
//!
//! * **Visit.** A load and a store that follows it are one visit: a thread with `r` loads and `w` stores in an interval
//!   has `max(r, w)` visits, of which `w` write. An atomic instruction is one visit that writes.
//! * **Unordered visits.** In an interval in which several threads visit a line at rates that do not depend on each
//!   other, the visit before one of thread `i` was another thread's with probability `X / (X + u)`: `u` are the visits
//!   of `i`, `X` those of the others that matter: all if `i` writes, otherwise those that write. Each such visit moves
//!   the line once.
//! * **Critical sections.** Visits in sections that begin and end at the same word are never at the same time. A
//!   section moves the line at most once: the visits are at most the number of sections. A lock that is not taken at
//!   once is stored to more often, so that the parity of these stores changes; that threads store to the same bytes
//!   shows the lock then.
//! * **Order.** Threads whose intervals are long and never overlap in virtual time (phases between barriers, creation)
//!   are ordered: their visits in different intervals do not contend. Intervals that are short, as between two atomic
//!   instructions, show no order: which thread came first was the host's choice.
//!
//! Bounds: no estimate exceeds the number of visits.

use std::collections::BTreeMap;

use numaloc_journal::{AccessKind, AccessSample};

pub(crate) mod visits;

/// Fewest samples of a thread that contends: one sample of an access that was made once stands for many.
const FEWEST_OF_THREAD: u64 = 2;
/// Fewest samples of a contended line.
const FEWEST_OF_LINE: u64 = 8;
/// Intervals shorter than this, in accesses, show no order between threads.
const SHORT: f64 = 4096.0;
/// Share of the samples that must lie in critical sections of one word.
const IN_SECTIONS: f64 = 0.8;
/// Share of them in which the word has been stored to as often, modulo 2: before a section once, after it twice.
const SAME_PARITY: f64 = 0.9;
/// Samples in a cell of time, at least, of all threads and for each of them.
const PER_CELL: usize = 32;
const OF_THREAD: usize = 8;
/// Most cells of time.
const CELLS: usize = 64;
/// Most samples of a cell that are compared in pairs.
const PAIRED: usize = 64;

/// A sample, and its thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub thread: usize,
    pub sample: AccessSample,
}

/// Bytes of the words that order threads.
const WORD: u64 = 4;

/// Number of critical sections by thread and word: how often a thread went through them.
#[derive(Default)]
pub(crate) struct Sections {
    /// By parity too, from the samples in sections.
    inside: BTreeMap<(usize, u64, bool), f64>,
    /// Plain stores to words.
    stores: BTreeMap<(usize, u64), f64>,
    /// Those of atomic instructions, by instruction too.
    atomics: BTreeMap<(usize, u64, u64), f64>,
}

impl Sections {
    /// Adds a sample of any line. A section of `n` accesses has `n` times the chance of one access to be sampled.
    pub fn add(&mut self, thread: usize, sample: &AccessSample) {
        let amount = sample.amount as f64;
        if sample.closed && sample.kind != AccessKind::Atomic {
            let length = (sample.until - sample.since).max(1);
            let key = (thread, sample.guard, sample.odd);
            *self.inside.entry(key).or_default() += amount / length as f64;
        }
        let word = sample.address / WORD;
        let sum = match sample.kind {
            AccessKind::Load => return,
            AccessKind::Store => self.stores.entry((thread, word)).or_default(),
            AccessKind::Atomic => {
                let key = (thread, word, sample.place);
                self.atomics.entry(key).or_default()
            }
        };
        *sum += amount;
    }

    /// Sections of a thread; without a parity, those inside and outside the lock are as many. Most accesses of a lock's
    /// code are not sampled, so that short sections are seen more rarely than the stores to its word: the plain one
    /// that leaves it, else those of the atomic instruction that runs most often, which takes the lock or leaves it.
    /// Others are attempts of a thread that does not get the lock at once.
    fn of(&self, thread: usize, word: u64, parity: Option<bool>) -> f64 {
        let of = |odd| self.inside.get(&(thread, word, odd)).copied();
        let of = |odd| of(odd).unwrap_or(0.0);
        let inside = parity.map_or_else(|| (of(false) + of(true)) / 2.0, of);
        let word = word / WORD;
        let atomics = self
            .atomics
            .range((thread, word, 0)..=(thread, word, u64::MAX));
        let most = atomics.map(|(_, &sum)| sum).fold(0.0, f64::max);
        let plain = self.stores.get(&(thread, word)).copied();
        inside.max(plain.unwrap_or(most))
    }
}

/// What would happen to a line.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Estimate {
    /// Threads that contend.
    pub threads: u32,
    /// Those of them that write.
    pub writers: u32,
    /// Visits: an upper bound of the transfers.
    pub visits: u64,
    /// Transfers between caches.
    pub transfers: u64,
    /// Those between threads that use different bytes.
    pub false_transfers: u64,
    /// Visits by atomic instructions.
    pub atomics: u64,
    /// Samples.
    pub samples: u64,
    /// The instruction that stores most often, and the one that loads most often; 0 if unknown or none.
    pub places: [u64; 2],
    /// The word of the lock that guards the line, and the parity of stores to it inside of sections, if known.
    pub lock: Option<(u64, Option<bool>)>,
}

/// A thread's loads and stores.
#[derive(Clone, Copy, Default)]
struct Use {
    loads: f64,
    stores: f64,
    atomics: f64,
    /// Variances of the loads, and of the stores and atomic instructions.
    variance: [f64; 2],
    samples: u64,
    /// Those of plain loads and stores.
    plain: u64,
    /// Bytes stored, and all bytes used, of the line.
    stored: u64,
    used: u64,
}

impl Use {
    fn visits(&self) -> f64 {
        self.loads.max(self.writes())
    }

    fn writes(&self) -> f64 {
        self.stores + self.atomics
    }

    fn add(&mut self, sample: &AccessSample) {
        let amount = sample.amount as f64;
        let first = sample.address & 63;
        let size = u64::from(sample.size).clamp(1, 64 - first);
        let bytes = (u64::MAX >> (64 - size)) << first;
        self.variance[usize::from(sample.kind != AccessKind::Load)] += amount * amount;
        match sample.kind {
            AccessKind::Load => self.loads += amount,
            AccessKind::Store => self.stores += amount,
            AccessKind::Atomic => self.atomics += amount,
        }
        if sample.kind != AccessKind::Load {
            self.stored |= bytes;
        }
        self.used |= bytes;
        self.samples += 1;
        self.plain += u64::from(sample.kind != AccessKind::Atomic);
    }

    /// Next to atomic instructions, one sample of a plain access that was made once does not stand for many.
    fn forget_single(&mut self) {
        if self.plain < FEWEST_OF_THREAD {
            (self.loads, self.stores, self.plain) = (0.0, 0.0, 0);
        }
    }
}

type Uses = BTreeMap<usize, Use>;

/// Standard deviations by which numbers differ: loads from writes of all threads, and a thread's ratio from theirs.
const DIFFERENT: f64 = 2.0;
const OF_ITS_OWN: f64 = 3.0;

/// Gives threads that load and write the ratio of loads to writes that all of them have together: 1 unless they show
/// another. The larger of two numbers that are estimated from few samples would be too large. Threads with a ratio of
/// their own keep it.
fn settle(uses: &mut Uses) {
    let is_mixed = |one: &Use| one.loads > 0.0 && one.writes() > 0.0;
    let (mut loads, mut writes, mut variance) = (0.0, 0.0, 0.0);
    for one in uses.values().filter(|one| is_mixed(one)) {
        loads += one.loads;
        writes += one.writes();
        variance += one.variance[0] + one.variance[1];
    }
    let equal = (loads - writes).powi(2) <= DIFFERENT.powi(2) * variance;
    let ratio = if equal { 1.0 } else { loads / writes };
    for one in uses.values_mut().filter(|one| is_mixed(one)) {
        // Writes as the loads show them, with their variance.
        let (shown, spread) = (one.loads / ratio, one.variance[0] / ratio.powi(2));
        let written = one.writes();
        if (shown - written).powi(2) > OF_ITS_OWN.powi(2) * (spread + one.variance[1]) {
            continue;
        }
        let settled = (shown * one.variance[1] + written * spread) / (spread + one.variance[1]);
        one.loads = settled * ratio;
        one.stores *= settled / written;
        one.atomics *= settled / written;
    }
}

fn uses<'a>(accesses: impl IntoIterator<Item = &'a Access>) -> Uses {
    let mut uses = Uses::new();
    for access in accesses {
        uses.entry(access.thread).or_default().add(&access.sample);
    }
    uses.values_mut()
        .filter(|one| one.atomics > 0.0)
        .for_each(Use::forget_single);
    uses
}

/// Transfers of unordered visits.
fn unordered(uses: &Uses) -> f64 {
    let all: f64 = uses.values().map(Use::visits).sum();
    let writes: f64 = uses.values().map(Use::writes).sum();
    let of = |one: &Use| {
        let (visits, own) = (one.visits(), one.writes());
        let moved = |count: f64, others: f64| match others > 0.0 {
            true => count * others / (others + visits),
            false => 0.0,
        };
        moved(own, all - visits) + moved(visits - own, writes - own)
    };
    uses.values().map(of).sum()
}

/// The estimate for a line with these accesses of several threads; `None` if no two threads contend for it.
pub(crate) fn estimate(accesses: &[Access], sections: &Sections) -> Option<Estimate> {
    let mut uses = uses(accesses);
    uses.retain(|_, one| one.samples >= FEWEST_OF_THREAD);
    settle(&mut uses);
    let contends = |access: &&Access| uses.contains_key(&access.thread);
    let kept: Vec<Access> = accesses.iter().filter(contends).copied().collect();
    let writers = uses.values().filter(|one| one.writes() > 0.0).count();
    if uses.len() < 2 || writers == 0 || (kept.len() as u64) < FEWEST_OF_LINE {
        return None;
    }
    let visits: f64 = uses.values().map(Use::visits).sum();
    let has_atomics = uses.values().any(|one| one.atomics > 0.0);
    // Threads that store to the same bytes without atomic instructions have a lock.
    let is_lock = |parity: Option<bool>| parity.is_some() || false_share(&uses) < 0.5;
    let lock = match has_atomics {
        false => section(&kept).filter(|(_, parity)| is_lock(*parity)),
        true => lock_beside(&kept),
    };
    let transfers = match lock {
        Some((word, parity)) => in_sections(&uses, |thread| sections.of(thread, word, parity)),
        None if has_atomics || mean_length(&kept) < SHORT => unordered(&uses),
        None => by_time(&kept, &uses),
    };
    let transfers = transfers.min(visits);
    if transfers < 1.0 {
        return None;
    }
    Some(Estimate {
        threads: uses.len() as u32,
        writers: writers as u32,
        visits: visits.round() as u64,
        transfers: transfers.round() as u64,
        false_transfers: (transfers * false_share(&uses)).round() as u64,
        atomics: uses.values().map(|one| one.atomics).sum::<f64>().round() as u64,
        samples: kept.len() as u64,
        places: [
            place(&kept, |kind| kind != AccessKind::Load),
            place(&kept, |kind| kind == AccessKind::Load),
        ],
        lock,
    })
}

/// The word and parity of the critical sections in which nearly all samples lie. The parity is `None` if it changes:
/// a thread that did not get the lock at once has stored to the word more often.
fn section(accesses: &[Access]) -> Option<(u64, Option<bool>)> {
    let mut by_word: BTreeMap<u64, [f64; 2]> = BTreeMap::new();
    let mut all = 0.0;
    for Access { sample, .. } in accesses {
        let amount = sample.amount as f64;
        all += amount;
        if sample.closed && sample.guard != 0 {
            by_word.entry(sample.guard).or_default()[usize::from(sample.odd)] += amount;
        }
    }
    let (word, [even, odd]) = by_word
        .into_iter()
        .max_by(|a, b| (a.1[0] + a.1[1]).total_cmp(&(b.1[0] + b.1[1])))?;
    let here = even + odd;
    let parity = (even.max(odd) >= SAME_PARITY * here).then_some(odd > even);
    (here >= IN_SECTIONS * all).then_some((word, parity))
}

/// The word of a lock on the same line as what it guards, as [`section`]: all atomic instructions of the line are on
/// that word. Who has taken the lock has the line.
fn lock_beside(accesses: &[Access]) -> Option<(u64, Option<bool>)> {
    let is_atomic = |access: &&Access| access.sample.kind == AccessKind::Atomic;
    let (atomic, plain): (Vec<&Access>, Vec<&Access>) = accesses.iter().partition(is_atomic);
    let plain: Vec<Access> = plain.into_iter().copied().collect();
    let (word, parity) = section(&plain)?;
    let takes = |access: &&Access| access.sample.address / WORD == word / WORD;
    let is_lock = || parity.is_some() || false_share(&uses(&plain)) < 0.5;
    let enough = plain.len() as u64 >= FEWEST_OF_LINE;
    (enough && atomic.iter().all(takes) && is_lock()).then_some((word, parity))
}

/// Transfers of visits in critical sections, each of which moves the line at most once.
fn in_sections(uses: &Uses, sections: impl Fn(usize) -> f64) -> f64 {
    let visits: Vec<f64> = uses
        .iter()
        .map(|(&thread, one)| one.visits().min(sections(thread).max(1.0)))
        .collect();
    let all: f64 = visits.iter().sum();
    visits.iter().map(|one| one * (1.0 - one / all)).sum()
}

fn mean_length(accesses: &[Access]) -> f64 {
    let length = |access: &Access| access.sample.until.saturating_sub(access.sample.since) as f64;
    accesses.iter().map(length).sum::<f64>() / accesses.len().max(1) as f64
}

/// Transfers of visits in long intervals: by cells of time, in which threads contend as far as their intervals overlap.
fn by_time(accesses: &[Access], all: &Uses) -> f64 {
    let mut ordered = accesses.to_vec();
    ordered.sort_by_key(|access| (access.sample.time, access.thread));
    let fewest = PER_CELL.max(OF_THREAD * all.len());
    let cells = ordered.chunks(fewest.max(ordered.len().div_ceil(CELLS)));
    // A cell has too few samples to show how many of a thread's accesses are stores: these are the line's.
    let typical = |cell: &[Access]| {
        let mut uses = uses(cell);
        for (thread, one) in &mut uses {
            let whole = &all[thread];
            let part = (one.loads + one.writes()) / (whole.loads + whole.writes());
            (one.loads, one.stores, one.atomics) = (whole.loads * part, whole.writes() * part, 0.0);
        }
        uses
    };
    let of = |cell: &[Access]| {
        let ends = [cell.first(), cell.last()].map(|end| end.map_or(0, |end| end.sample.time));
        unordered(&typical(cell)) * overlap(cell, (ends[1] - ends[0] + 1) as f64)
    };
    cells.map(of).sum()
}

/// Share of the pairs of samples of different threads, one of which stores, whose intervals overlap, compared with how
/// many would if the threads ignored each other; 1 at most.
fn overlap(cell: &[Access], length: f64) -> f64 {
    // Stores may be few.
    let stores: Vec<&Access> = cell
        .iter()
        .filter(|access| access.sample.kind != AccessKind::Load)
        .collect();
    let some = |of: usize| of.div_ceil(PAIRED).max(1);
    let (mut found, mut expected) = (0.0, 0.0);
    for a in stores.iter().step_by(some(stores.len())) {
        for b in cell.iter().step_by(some(cell.len())) {
            if a.thread == b.thread {
                continue;
            }
            let (a, b) = (&a.sample, &b.sample);
            let lengths = (a.until - a.since) + (b.until - b.since);
            expected += (lengths as f64 / length).min(1.0);
            found += f64::from(a.since.max(b.since) < a.until.min(b.until));
        }
    }
    match expected > 0.0 {
        true => (found / expected).min(1.0),
        false => 0.0,
    }
}

/// Share of the transfers that are between threads of which neither uses what the other stores.
fn false_share(uses: &Uses) -> f64 {
    let (mut all, mut apart) = (0.0, 0.0);
    let list: Vec<&Use> = uses.values().collect();
    for (at, a) in list.iter().enumerate() {
        for b in &list[at + 1..] {
            if a.stored == 0 && b.stored == 0 {
                continue;
            }
            let weight = a.visits() * b.visits();
            all += weight;
            if a.stored & b.used == 0 && b.stored & a.used == 0 {
                apart += weight;
            }
        }
    }
    if all > 0.0 { apart / all } else { 0.0 }
}

/// The place of most accesses of some kinds.
fn place(accesses: &[Access], kinds: impl Fn(AccessKind) -> bool) -> u64 {
    let mut sums: BTreeMap<u64, u64> = BTreeMap::new();
    for Access { sample, .. } in accesses.iter().filter(|access| kinds(access.sample.kind)) {
        if sample.place != 0 {
            *sums.entry(sample.place).or_default() += sample.amount;
        }
    }
    let most = sums
        .into_iter()
        .max_by_key(|&(place, sum)| (sum, std::cmp::Reverse(place)));
    most.map_or(0, |(place, _)| place)
}

#[cfg(test)]
#[path = "contention/tests.rs"]
mod tests;
