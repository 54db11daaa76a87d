//! When threads visit a contended line: parts of the run in which a thread's visits are evenly spread, for simulations
//! that replay them.
//!
//! A sample of a thread stands for a number of accesses to the line, the last of which it is. Divided by all accesses
//! of the thread since its sample of the line before, it says how far apart the visits are. Where a sample is much
//! farther from the one before than usual, the thread has paused. Time does not matter here: it moves forward where
//! threads wait for each other.
//!
//! A lock's line is visited once in each critical section; its sections are where the samples of the line are that it
//! guards.

use super::{Access, Sections, Use, uses};

/// Most parts of a thread, for one line, and of all threads together.
const OF_THREAD: usize = 64;
const OF_LINE: usize = 4096;
/// Of each thread in any case, and of lines with fewer transfers.
const LEAST: usize = 4;
/// A pause is this many times as long as samples are apart.
const PAUSE: f64 = 8.0;

/// Visits of a thread from one of its accesses to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Visits {
    pub thread: usize,
    pub from: u64,
    pub until: u64,
    pub visits: f64,
    pub writes: f64,
    pub atomics: f64,
}

/// How much is known of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Many parts of threads with several samples.
    Full,
    /// Few parts of these.
    Less,
    /// A few samples, all of which count.
    Least,
}

/// The parts of all threads.
pub(crate) fn visits(accesses: &[Access], detail: Detail) -> Vec<Visits> {
    let mut uses = uses(accesses);
    if detail != Detail::Least {
        uses.retain(|_, one| one.samples >= super::FEWEST_OF_THREAD);
        super::settle(&mut uses);
    }
    let most = match detail {
        Detail::Less | Detail::Least => LEAST,
        Detail::Full => (OF_LINE / uses.len().max(1)).clamp(LEAST, OF_THREAD),
    };
    let mut found = Vec::new();
    for (&thread, of_all) in &uses {
        let own = accesses.iter().filter(|access| access.thread == thread);
        let mut samples: Vec<(u64, f64)> = own
            .map(|access| (access.sample.accesses, access.sample.amount as f64))
            .collect();
        samples.sort_by_key(|(at, _)| *at);
        found.extend(parts(&samples, most).into_iter().map(|part| {
            let share = part.amount / samples.iter().map(|(_, amount)| amount).sum::<f64>();
            part.visits(thread, of_all, share)
        }));
    }
    found
}

/// A lock's sections in the parts of the samples that it guards: the visits, and how long it is held, in accesses.
pub(crate) fn of_lock(
    guarded: &[Access],
    sections: &Sections,
    (word, parity): (u64, Option<bool>),
) -> (Vec<Visits>, u64) {
    let inside = || {
        guarded
            .iter()
            .filter(|access| access.sample.closed && access.sample.guard == word)
    };
    let length = |access: &Access| (access.sample.until - access.sample.since).max(1) as f64;
    let accesses: f64 = inside().map(|access| access.sample.amount as f64).sum();
    let number: f64 = inside()
        .map(|access| access.sample.amount as f64 / length(access))
        .sum();
    let held = (accesses / number.max(f64::MIN_POSITIVE)).round().max(1.0);
    let mut found = visits(guarded, Detail::Full);
    let of_thread = |thread| -> f64 {
        let own = found.iter().filter(|one: &&Visits| one.thread == thread);
        own.map(|one| one.visits).sum()
    };
    let share: Vec<f64> = found
        .iter()
        .map(|one| one.visits / of_thread(one.thread).max(f64::MIN_POSITIVE))
        .collect();
    for (one, share) in found.iter_mut().zip(share) {
        let all = sections.of(one.thread, word, parity).max(1.0);
        let number = (all * share).max(1.0);
        (one.visits, one.writes, one.atomics) = (number, number, number);
    }
    (found, held as u64)
}

/// Samples that follow each other.
struct Part {
    from: u64,
    until: u64,
    amount: f64,
}

impl Part {
    fn visits(&self, thread: usize, of_all: &Use, share: f64) -> Visits {
        Visits {
            thread,
            from: self.from,
            until: self.until,
            visits: of_all.visits() * share,
            writes: of_all.writes().min(of_all.visits()) * share,
            atomics: of_all.atomics.min(of_all.visits()) * share,
        }
    }
}

/// Samples of one thread, in order: the thread's accesses before each, and those that it stands for; as at most about
/// `most` parts.
fn parts(samples: &[(u64, f64)], most: usize) -> Vec<Part> {
    let ratio = |pair: &[(u64, f64)]| (pair[1].0 - pair[0].0) as f64 / pair[1].1.max(1.0);
    let mut ratios: Vec<f64> = samples.windows(2).map(ratio).collect();
    ratios.sort_by(f64::total_cmp);
    // Of a thread with one sample, visits are as close as they can be.
    let typical = ratios
        .get(ratios.len() / 2)
        .copied()
        .unwrap_or(1.0)
        .max(1.0);
    let each = samples.len().div_ceil(most);
    let mut parts: Vec<Part> = Vec::new();
    let (mut count, mut pauses) = (0, 0);
    for (at, &(own, amount)) in samples.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| &samples[before..=at]);
        let pair = before.filter(|pair| ratio(pair) <= PAUSE * typical);
        let begins = at == 0 || count == each || pair.is_none() && pauses < most;
        pauses += usize::from(pair.is_none());
        match parts.last_mut() {
            Some(last) if !begins => {
                (last.until, last.amount) = (own, last.amount + amount);
                count += 1;
            }
            _ => {
                let earliest = own.saturating_sub((amount * typical).round() as u64);
                parts.push(Part {
                    from: pair.map_or(earliest, |pair| pair[0].0),
                    until: own,
                    amount,
                });
                count = 1;
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_end_where_the_next_begins_or_the_thread_pauses() {
        // Two hundred samples, each of ten accesses in forty; then a pause; then twenty more.
        let of = |from: u64, count| (0..count).map(move |at| (from + 40 * at, 10.0));
        let samples: Vec<(u64, f64)> = of(1000, 200).chain(of(1_000_000, 20)).collect();
        let found = parts(&samples, 4);
        let ends: Vec<(u64, u64)> = found.iter().map(|part| (part.from, part.until)).collect();
        assert_eq!(
            ends,
            [
                (960, 3160),
                (3160, 5360),
                (5360, 7560),
                (7560, 8960),
                (999_960, 1_000_760)
            ]
        );
        let amounts: Vec<f64> = found.iter().map(|part| part.amount).collect();
        assert_eq!(amounts, [550.0, 550.0, 550.0, 350.0, 200.0]);
    }

    #[test]
    fn parts_are_not_more_than_twice_as_many_as_asked_for() {
        let samples: Vec<(u64, f64)> = (0..1000u64)
            .map(|at| (at * 10 + at / 3 * 100_000, 1.0))
            .collect();
        assert!(parts(&samples, 8).len() <= 17);
    }
}
