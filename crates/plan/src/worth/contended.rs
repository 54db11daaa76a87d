//! Lines for which threads contend: their transfers if the threads run at the same time, instead of the recorded ones.
//!
//! The profile estimates how often a line moves, and says when threads visit it ([`numaloc_analysis::contended`]). A
//! thread receives its share when it visits the line, from the other visitors in proportion to their visits; of many
//! visitors, from [`PARTNERS`] at equal distances in their order. Lines of which it is not known when threads visit
//! them are a share of the recorded events.

use std::collections::{BTreeMap, HashMap};

use numaloc_analysis::contended::{LineWaits, waits};
use numaloc_model::profile::{ContendedVisits, Profile};

/// Lines that one thread receives from another in a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exchange {
    pub segment: u32,
    pub src: u32,
    pub dst: u32,
    pub lines: f64,
    /// Whether threads contend for them, so that the recording does not say how many they are.
    pub contended: bool,
}

/// Shares (0..=1) of the exchanged lines.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Contention {
    /// That threads contend for: which of them comes next, no prefetcher knows.
    pub all: f64,
    /// That atomic instructions contend for: a core goes on when it has the line.
    pub atomic: f64,
    /// Those of the line that moves most, or that atomic instructions contend for most: one core at a time has it.
    pub busiest: f64,
}

/// Threads from which one receives a line.
const PARTNERS: usize = 16;

/// Transfers that threads wait for.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    all: f64,
    atomic: f64,
    busiest: f64,
}

impl Sums {
    fn add(&mut self, line: &LineWaits, busiest: f64) {
        self.all += line.waited;
        self.atomic += line.atomic;
        self.busiest = self.busiest.max(busiest);
    }

    fn shares_of(&self, lines: f64) -> Contention {
        let share = |transfers: f64| (transfers / lines.max(1.0)).min(1.0);
        Contention {
            all: share(self.all),
            atomic: share(self.atomic),
            busiest: share(self.busiest),
        }
    }
}

/// Transfers of contended lines.
#[derive(Clone, Debug, Default)]
pub(super) struct Contended {
    exchanges: Vec<Exchange>,
    /// Recorded events that they take the place of.
    replaced: f64,
    /// Of these lines, and of those that are among the recorded events.
    own: Sums,
    recorded: Sums,
}

impl Contended {
    /// Of a profile; `ends` has each thread's accesses at the ends of the segments.
    pub(super) fn of(profile: &Profile, ends: &[Vec<f64>]) -> Self {
        let events = profile.shared_lines().iter();
        let events: HashMap<u64, u64> = events.map(|line| (line.line, line.events)).collect();
        let mut visits: HashMap<u64, Vec<&ContendedVisits>> = HashMap::new();
        for row in profile.contended_visits() {
            visits.entry(row.line).or_default().push(row);
        }
        let mut found = Self::default();
        let mut sums = BTreeMap::new();
        for line in &waits(profile) {
            match visits.get(&line.line) {
                Some(visits) => {
                    add(&mut sums, visits, line.waited, ends);
                    found.own.add(line, line.waited);
                    found.replaced += events.get(&line.line).copied().unwrap_or(0) as f64;
                }
                None => found.recorded.add(line, line.atomic),
            }
        }
        let exchange = |((segment, src, dst), lines)| Exchange {
            segment,
            src,
            dst,
            lines,
            contended: true,
        };
        found.exchanges = sums.into_iter().map(exchange).collect();
        found
    }

    /// Puts the transfers among the recorded events, in their order. Returns the shares of contended lines in the
    /// events that are left, and of the lines here.
    pub(super) fn replace(self, exchanges: &mut Vec<Exchange>) -> [Contention; 2] {
        let lines: f64 = exchanges.iter().map(|at| at.lines).sum();
        let left = (1.0 - self.replaced / lines.max(1.0)).max(0.0);
        for at in exchanges.iter_mut() {
            at.lines *= left;
        }
        exchanges.extend(self.exchanges);
        exchanges.sort_by_key(|at| (at.segment, at.src, at.dst, at.contended));
        [
            self.recorded.shares_of(lines * left),
            self.own.shares_of(self.own.all),
        ]
    }
}

/// Adds `transfers` of a line with these visits; `ends` has each thread's accesses at the ends of the segments.
fn add(
    sums: &mut BTreeMap<(u32, u32, u32), f64>,
    visits: &[&ContendedVisits],
    transfers: f64,
    ends: &[Vec<f64>],
) {
    let mut of_thread: BTreeMap<u32, f64> = BTreeMap::new();
    for row in visits {
        *of_thread.entry(row.thread.0).or_default() += row.visits as f64;
    }
    let threads: Vec<(u32, f64)> = of_thread.into_iter().collect();
    let all: f64 = threads.iter().map(|(_, visits)| visits).sum();
    for row in visits {
        let dst = row.thread.0;
        let Ok(place) = threads.binary_search_by_key(&dst, |(thread, _)| *thread) else {
            continue;
        };
        // The visits are evenly spread: those in the middle stand for all.
        let middle = (row.from + (row.until - row.from) / 2) as f64;
        let ends = &ends[dst as usize];
        let segment = ends.partition_point(|&end| end < middle);
        let segment = segment.min(ends.len().saturating_sub(1)) as u32;
        let others: Vec<(u32, f64)> = partners(&threads, place).collect();
        let weight: f64 = others.iter().map(|(_, visits)| visits).sum();
        let received = transfers * row.visits as f64 / all.max(1.0);
        for (src, visits) in others {
            *sums.entry((segment, src, dst)).or_default() += received * visits / weight.max(1.0);
        }
    }
}

/// The threads, without the one at a place, from which that one receives a line.
fn partners(threads: &[(u32, f64)], place: usize) -> impl Iterator<Item = (u32, f64)> {
    let others = threads.len() - 1;
    let count = others.min(PARTNERS);
    (0..count).map(move |at| threads[(place + 1 + at * others / count) % threads.len()])
}
