//! Lines for which threads would contend, summed by the variables in them.
//!
//! The profile has an estimate for each line ([`Profile::contended_lines`]); here lines with the same variables are one
//! row, with what all its threads and one of them would wait for.
//!
//! A core that waits for a line goes on with what comes next, and where that visits the line again, one wait is for all
//! of it: plain visits that a thread makes within 64 accesses take the line once; atomic instructions wait for each
//! transfer. `make bench-contention` compares this with a machine (docs/tracing.md).
//!
//! Cost: O(lines log variables).

use std::collections::{BTreeMap, BTreeSet};

use numaloc_model::conditions::WorkSharing;
use numaloc_model::profile::{ContendedLine, Profile, VisitedKind};
use numaloc_model::{CodePlace, MarkKind, MarkPlace, ObjectIdx};

use crate::sharing::{SharedMemory, variables_at};

/// Lines of one object, or of the same variables of one object.
#[derive(Clone, Debug, PartialEq)]
pub struct ContendedMemory {
    /// What it is; its events are transfers.
    pub memory: SharedMemory,
    /// Most threads that contend for one of the lines.
    pub threads: u32,
    /// Most of them that write.
    pub writers: u32,
    /// Visits of all threads.
    pub visits: u64,
    /// Those by atomic instructions.
    pub atomics: u64,
    /// Whether the run has a contended lock, which may guard it.
    pub has_lock: bool,
    /// Whether it is a lock itself, perhaps with what it guards.
    pub is_lock: bool,
    /// Whether a run-time library counts there which iterations of a loop it has handed out.
    pub hands_out: bool,
    /// Transfers that one thread waits for: each line's divided by its threads.
    pub of_thread: f64,
    /// Transfers of the line that has most: one waits for the other.
    pub of_line: f64,
    /// Samples.
    pub samples: u64,
    /// Where most stores are, and most loads.
    pub places: [CodePlace; 2],
    /// Its lines: address divided by the size of a line; most transfers first.
    pub numbers: Vec<u64>,
}

impl ContendedMemory {
    fn of(line: &ContendedLine, variables: Vec<usize>, has_lock: bool) -> Self {
        Self {
            memory: SharedMemory {
                object: line.object,
                variables,
                lines: 0,
                events: 0,
                false_events: 0,
            },
            threads: 0,
            writers: 0,
            visits: 0,
            atomics: 0,
            has_lock,
            is_lock: false,
            hands_out: false,
            of_thread: 0.0,
            of_line: 0.0,
            samples: 0,
            // Lines come with the most transfers first.
            places: [line.writer.clone(), line.reader.clone()],
            numbers: Vec::new(),
        }
    }

    fn add(&mut self, line: &ContendedLine, waited: f64) {
        self.numbers.push(line.line);
        self.memory.lines += 1;
        self.memory.events += line.transfers;
        self.memory.false_events += line.false_transfers;
        self.threads = self.threads.max(line.threads);
        self.writers = self.writers.max(line.writers);
        self.visits += line.visits;
        self.atomics += line.atomics;
        self.of_thread += waited / f64::from(line.threads.max(1));
        self.of_line = self.of_line.max(waited);
        self.samples += line.samples;
    }

    /// Whether different threads mostly use different bytes of it.
    #[must_use]
    pub fn is_false(&self) -> bool {
        2 * self.memory.false_events >= self.memory.events
    }

    /// Whether several threads count there by atomic instructions: the recorded order of these is one of many, which
    /// does not make any of them wait. A lock is none, nor is what a run-time library does, but for handing out a loop.
    #[must_use]
    pub fn is_counter(&self) -> bool {
        let orders = self.is_lock || self.orders() && !self.hands_out;
        !self.is_false() && self.writers > 1 && !orders && 2 * self.atomics >= self.visits
    }

    /// Whether several threads write there, but none adds to what another one wrote: with plain loads and stores and
    /// without a lock, values would be lost. Each has words of its own that others read, such as the two indices of a
    /// ring buffer.
    #[must_use]
    pub fn hands_over(&self) -> bool {
        !self.is_false() && self.writers > 1 && self.atomics == 0 && !self.has_lock
    }

    /// Whether most stores are in code that [orders threads](CodePlace::orders_threads).
    #[must_use]
    pub fn orders(&self) -> bool {
        self.places[0].orders_threads()
    }

    /// Seconds that the run takes longer if a transfer takes `transfer_s` and the run without them `run_s`: each thread
    /// waits for its own, and no line can move faster than one transfer after the other.
    #[must_use]
    pub fn cost_s(&self, transfer_s: f64, run_s: f64) -> f64 {
        let own = self.of_thread * transfer_s;
        own.max(self.of_line * transfer_s - run_s)
    }
}

/// Accesses of a core after the oldest load that it waits for.
const WINDOW: f64 = 64.0;

/// By line: how many plain visits of a thread fall into one window, at least 1.
fn together(profile: &Profile) -> BTreeMap<u64, f64> {
    let mut sums: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    let plain = profile.contended_visits().iter();
    for row in plain.filter(|row| row.kind != VisitedKind::Lock && row.visits > row.atomics) {
        let sum = sums.entry(row.line).or_default();
        *sum = (
            sum.0 + row.visits - row.atomics,
            sum.1.saturating_add(row.until - row.from),
        );
    }
    let of = |(visits, span): (u64, u64)| WINDOW * visits as f64 / span.max(1) as f64;
    sums.into_iter()
        .map(|(line, sum)| (line, of(sum).clamp(1.0, WINDOW)))
        .collect()
}

/// Transfers of a contended line that threads wait for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LineWaits {
    /// As in [`ContendedLine`].
    pub line: u64,
    /// All.
    pub waited: f64,
    /// Those of atomic instructions.
    pub atomic: f64,
}

/// Of the contended lines, in their order in the profile.
#[must_use]
pub fn waits(profile: &Profile) -> Vec<LineWaits> {
    let together = together(profile);
    let mut sections: BTreeMap<u64, u64> = BTreeMap::new();
    let rows = profile.contended_visits().iter();
    for row in rows.filter(|row| row.kind == VisitedKind::Lock) {
        *sections.entry(row.line).or_default() += row.visits;
    }
    let of = |line: &ContendedLine| {
        let share = (line.atomics as f64 / line.visits.max(1) as f64).min(1.0);
        let together = together.get(&line.line).copied().unwrap_or(1.0);
        // Who leaves a lock has its line: there is one wait in each section.
        let sections = sections
            .get(&line.line)
            .map_or(f64::INFINITY, |&n| n as f64);
        let atomic = (line.transfers as f64 * share).min(sections);
        LineWaits {
            line: line.line,
            waited: atomic + line.transfers as f64 * (1.0 - share) / together,
            atomic,
        }
    };
    profile.contended_lines().iter().map(of).collect()
}

/// Most visits that a thread makes to a line of a run-time library at a barrier, or where a region begins or ends.
const GATE_VISITS: u64 = 8;

/// Whether the run has loops of which a run-time library hands out iterations.
fn hands_out_loops(profile: &Profile) -> bool {
    let loops = [WorkSharing::DynamicLoop, WorkSharing::RuntimeLoop];
    let mut open = profile.meta().conditions.open();
    open.any(|(kind, _)| loops.contains(kind))
}

/// How often threads began or ended regions or passed barriers, each by all of them.
fn gates(profile: &Profile) -> u64 {
    let mut passes: BTreeMap<&MarkPlace, u64> = BTreeMap::new();
    for mark in profile.marks() {
        let known = passes.entry(&mark.place).or_default();
        *known = mark.occurrence.max(*known);
    }
    let of = |(place, passes): (&MarkPlace, u64)| match place.kind {
        MarkKind::Region => 2 * passes,
        MarkKind::Barrier => passes,
        MarkKind::Thread | MarkKind::User => 0,
    };
    passes.into_iter().map(of).sum::<u64>().max(1)
}

/// By variables or object, most transfers first, then first in memory.
#[must_use]
pub fn contended(profile: &Profile) -> Vec<ContendedMemory> {
    let rows = profile.contended_visits().iter();
    let locks = rows.filter(|row| row.kind == VisitedKind::Lock);
    let locks: BTreeSet<u64> = locks.map(|row| row.line).collect();
    let mut sums: BTreeMap<(Option<ObjectIdx>, Vec<usize>), ContendedMemory> = BTreeMap::new();
    for (line, waits) in profile.contended_lines().iter().zip(waits(profile)) {
        let variables = variables_at(profile, line.object, line.object_offset);
        let one = sums
            .entry((line.object, variables.clone()))
            .or_insert_with(|| ContendedMemory::of(line, variables, !locks.is_empty()));
        one.add(line, waits.waited);
        one.is_lock |= locks.contains(&line.line);
    }
    let mut memory: Vec<ContendedMemory> = sums.into_values().collect();
    if hands_out_loops(profile) {
        let gates = gates(profile);
        for one in &mut memory {
            let is_library = one.places[0].is_openmp_library() && !one.is_lock;
            let at_gates = GATE_VISITS * gates * u64::from(one.threads);
            one.hands_out = is_library && 2 * one.atomics >= one.visits && one.visits > at_gates;
        }
    }
    memory.sort_by_key(|m| std::cmp::Reverse(m.memory.events));
    memory
}

#[cfg(test)]
mod tests {
    use numaloc_model::profile::ContendedVisits;
    use numaloc_model::{MarkRow, ThreadIdx};

    use super::*;
    use crate::timeline::tests::profile_of;

    #[test]
    fn each_thread_waits_for_its_transfers_and_a_line_for_all() {
        let profile = profile_of(4, 1, &[(0, 0, 1, 100)]);
        let line = |line, threads, transfers| ContendedLine {
            line,
            threads,
            writers: 2,
            visits: 2000,
            transfers,
            samples: 50,
            ..ContendedLine::default()
        };
        let lines = vec![line(1, 4, 1000), line(2, 2, 300)];
        let profile = profile
            .changed(|tables| tables.contended_lines = lines)
            .unwrap();
        let found = contended(&profile);
        assert_eq!(found.len(), 1);
        let all = &found[0];
        assert_eq!(
            (all.memory.lines, all.memory.events, all.of_line),
            (2, 1300, 1000.0)
        );
        assert_eq!((all.of_thread, all.threads, all.samples), (400.0, 4, 100));
        // A long run hides what others wait for; a short one takes as long as the line.
        assert_eq!(all.cost_s(1e-3, 10.0), 0.4);
        assert_eq!(all.cost_s(1e-3, 0.1), 0.9);
    }

    #[test]
    fn plain_visits_within_a_window_wait_once_and_atomic_ones_each() {
        let profile = profile_of(2, 1, &[(0, 0, 1, 100)]);
        let line = |line, atomics| ContendedLine {
            line,
            threads: 2,
            writers: 2,
            visits: 2000,
            transfers: 1000,
            atomics,
            ..ContendedLine::default()
        };
        let row = |line, until, atomics| ContendedVisits {
            line,
            until,
            visits: 1000,
            writes: 1000,
            atomics,
            ..ContendedVisits::default()
        };
        // Eight accesses apart, far apart, and by atomic instructions.
        let lines = [(1, 0, 8000), (2, 0, 800_000), (3, 2000, 8000)];
        for (at, atomics, until) in lines {
            let changed = profile.clone().changed(|tables| {
                tables.contended_lines = vec![line(at, atomics)];
                tables.contended_visits = vec![row(at, until, atomics / 2)];
            });
            let found = contended(&changed.unwrap());
            let expected = if at == 1 { 1000.0 / 8.0 } else { 1000.0 };
            assert_eq!(
                (found[0].of_line, found[0].of_thread),
                (expected, expected / 2.0)
            );
        }
    }

    /// The memory of one line that two threads visit, in a run whose visits to a line are of some kind.
    fn contended_with(line: ContendedLine, (visited, kind): (u64, VisitedKind)) -> ContendedMemory {
        let changed = profile_of(2, 1, &[(0, 0, 1, 100)]).changed(|tables| {
            tables.contended_lines = vec![ContendedLine {
                line: 1,
                threads: 2,
                transfers: 1000,
                ..line
            }];
            tables.contended_visits = vec![ContendedVisits {
                line: visited,
                visits: 600,
                kind,
                ..ContendedVisits::default()
            }];
        });
        contended(&changed.unwrap()).remove(0)
    }

    #[test]
    fn without_atomic_instructions_and_locks_threads_hand_over_what_they_write() {
        let hands_over = |writers, atomics, kind| {
            let line = ContendedLine {
                writers,
                visits: 2000,
                atomics,
                ..ContendedLine::default()
            };
            // Line 2 is the lock's, if there is one.
            contended_with(line, (2, kind)).hands_over()
        };
        assert!(hands_over(2, 0, VisitedKind::Data));
        assert!(!hands_over(2, 2000, VisitedKind::Data));
        assert!(!hands_over(2, 0, VisitedKind::Lock));
        assert!(!hands_over(1, 0, VisitedKind::Data));
    }

    #[test]
    fn a_lock_is_no_counter_whoever_wrote_its_code() {
        let is_counter = |kind| {
            let line = ContendedLine {
                writers: 2,
                visits: 3000,
                atomics: 2000,
                ..ContendedLine::default()
            };
            contended_with(line, (1, kind)).is_counter()
        };
        assert!(is_counter(VisitedKind::Counter));
        assert!(!is_counter(VisitedKind::Lock));
    }

    #[test]
    fn a_loop_is_handed_out_where_a_library_counts_more_often_than_threads_pass_barriers() {
        let hands_out = |symbol: &str, function: &str, visits, passes| {
            let changed = profile_of(2, 1, &[(0, 0, 1, 100)]).changed(|tables| {
                let kind = WorkSharing::of_symbol(symbol);
                tables.meta.conditions.sharing = kind
                    .map(|kind| (kind, symbol.to_owned()))
                    .into_iter()
                    .collect();
                tables.contended_lines = vec![ContendedLine {
                    line: 1,
                    threads: 2,
                    writers: 2,
                    visits,
                    atomics: visits,
                    transfers: visits,
                    writer: CodePlace {
                        function: Some(function.to_owned()),
                        source: None,
                    },
                    ..ContendedLine::default()
                }];
                tables.marks = vec![MarkRow {
                    place: MarkPlace {
                        kind: MarkKind::Barrier,
                        name: "GOMP_barrier".to_owned(),
                    },
                    occurrence: passes,
                    thread: ThreadIdx(0),
                    time: 0,
                }];
            });
            let found = contended(&changed.unwrap());
            assert_eq!(found[0].is_counter(), found[0].hands_out);
            found[0].hands_out
        };
        let (dynamic, library) = ("GOMP_loop_dynamic_start", "libgomp.so.1.0.0+0xe72d");
        assert!(hands_out(dynamic, library, 1000, 10));
        // A barrier's line, a program without such loops, a lock of the program.
        assert!(!hands_out(dynamic, library, 1000, 500));
        assert!(!hands_out("GOMP_parallel", library, 1000, 10));
        assert!(!hands_out(dynamic, "spin_lock", 1000, 10));
    }

    #[test]
    fn a_lock_is_waited_for_once_in_each_section() {
        let profile = profile_of(2, 1, &[(0, 0, 1, 100)]);
        let changed = profile.changed(|tables| {
            tables.contended_lines = vec![ContendedLine {
                line: 1,
                threads: 2,
                writers: 2,
                visits: 2000,
                transfers: 1000,
                atomics: 2000,
                ..ContendedLine::default()
            }];
            tables.contended_visits = vec![ContendedVisits {
                line: 1,
                visits: 600,
                kind: VisitedKind::Lock,
                ..ContendedVisits::default()
            }];
        });
        let found = waits(&changed.unwrap());
        assert_eq!((found[0].waited, found[0].atomic), (600.0, 600.0));
    }
}
