//! The lines for which threads of a process would contend: their samples, objects and code.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use numaloc_journal::{AccessKind, Record};
use numaloc_model::ids::{ObjectIdx, ThreadIdx};
use numaloc_model::profile::{ContendedLine, ContendedVisits, VisitedKind, image};

use crate::Assembly;
use crate::contention::visits::{self, Detail, Visits};
use crate::contention::{Access, Estimate, Sections, estimate};
use crate::lineage::Lineage;
use crate::load::Space;
use crate::objects::Memory;
use crate::places::place;
use crate::sites::Code;

/// Most lines of a process that are listed.
const LISTED: usize = 1024;
/// Lines of which it is listed in detail when threads visit them.
const DETAILED: usize = 64;
/// Most lines of counters that are not listed as contended.
const COUNTERS: usize = 1 << 16;
/// Accesses of a thread from one time that it counts to the next, at most: at a barrier of the program's own it counts
/// more rarely, and its order matters.
const OFTEN: u64 = 1024;

impl Assembly<'_> {
    /// The contended lines of the `at`-th process image, those with the most transfers, and when threads visit them.
    pub(super) fn contended_lines(
        &self,
        (space, process): (&Space, &Lineage<'_>),
        at: u64,
        memory: &Memory,
        indexes: &[Option<ObjectIdx>],
        code: &dyn Code,
    ) -> (Vec<ContendedLine>, Vec<ContendedVisits>) {
        let size = self.meta.line_size;
        let mut sections = Sections::default();
        let mut lines: BTreeMap<u64, Vec<Access>> = BTreeMap::new();
        let mut threads: HashMap<u64, Option<usize>> = HashMap::new();
        for record in &space.records {
            let Record::Accesses { thread, cells } = record else {
                continue;
            };
            let Some(thread) = self.thread(space, *thread).map(|thread| thread.index()) else {
                continue;
            };
            for &sample in cells {
                sections.add(thread, &sample);
                let line = sample.address / size;
                // `None`: several threads.
                let seen = threads.entry(line).or_insert(Some(thread));
                *seen = seen.filter(|&other| other == thread);
                lines
                    .entry(line)
                    .or_default()
                    .push(Access { thread, sample });
            }
        }
        let estimates = lines
            .iter()
            .filter(|(line, _)| threads.get(line) == Some(&None))
            .filter_map(|(&line, accesses)| Some((line, estimate(accesses, &sections)?)));
        let mut estimates: Vec<(u64, Estimate)> = estimates.collect();
        estimates.sort_by_key(|(line, found)| (std::cmp::Reverse(found.transfers), *line));
        estimates.truncate(LISTED);
        let offset = image::first_line(at, size);
        let of_process = Lines {
            samples: &lines,
            size,
            first: offset,
        };
        let orders = |address| place(process, address, code).orders_threads();
        let visits = of_process.visited(&estimates, &sections, orders);
        let row = |(line, found): (u64, Estimate)| {
            let start = line.wrapping_mul(size);
            let object = memory.object_at(start, start.saturating_add(size));
            let base = object.map_or(start, |object| memory.objects[object].base);
            let [writer, reader] = found.places.map(|address| place(process, address, code));
            ContendedLine {
                line: offset.wrapping_add(line),
                object: object.and_then(|object| indexes[object]),
                object_offset: start.saturating_sub(base),
                threads: found.threads,
                writers: found.writers,
                visits: found.visits,
                transfers: found.transfers,
                false_transfers: found.false_transfers,
                atomics: found.atomics,
                samples: found.samples,
                writer,
                reader,
            }
        };
        (estimates.into_iter().map(row).collect(), visits)
    }
}

/// Samples by line of a process.
struct Lines<'a> {
    samples: &'a BTreeMap<u64, Vec<Access>>,
    size: u64,
    /// Number of the process's line 0 in the profile.
    first: u64,
}

impl Lines<'_> {
    fn rows(
        &self,
        line: u64,
        found: Vec<Visits>,
        (kind, held): (VisitedKind, u64),
    ) -> impl Iterator<Item = ContendedVisits> {
        let line = self.first.wrapping_add(line);
        found.into_iter().map(move |one| ContendedVisits {
            line,
            thread: ThreadIdx::from_index(one.thread),
            from: one.from,
            until: one.until,
            visits: one.visits.round().max(1.0) as u64,
            writes: one.writes.round() as u64,
            atomics: one.atomics.round() as u64,
            held,
            kind,
        })
    }

    /// The atomic instructions that count, outside of code that orders threads, and often.
    fn counts(&self, estimates: &[(u64, Estimate)], orders: impl Fn(u64) -> bool) -> BTreeSet<u64> {
        let counts = |found: &Estimate| found.writers > 1 && 2 * found.atomics >= found.visits;
        let found = estimates.iter().filter(|(_, found)| counts(found));
        let places = found.map(|(_, found)| found.places[0]);
        // Of unknown code nothing is known.
        let places: BTreeSet<u64> = places.filter(|&place| place != 0).collect();
        // By instruction and thread: how often, and between which of the thread's accesses.
        let mut times: BTreeMap<(u64, usize), (u64, u64, u64)> = BTreeMap::new();
        for Access { thread, sample } in self.samples.values().flatten() {
            if sample.kind == AccessKind::Atomic && places.contains(&sample.place) {
                let own = sample.accesses;
                let sum = times
                    .entry((sample.place, *thread))
                    .or_insert((0, own, own));
                *sum = (sum.0 + sample.amount, sum.1.min(own), sum.2.max(own));
            }
        }
        let mut rates: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for ((place, _), (amount, first, last)) in times {
            let sum = rates.entry(place).or_default();
            *sum = (sum.0 + amount, sum.1 + last - first);
        }
        let often = |place: &u64| rates.get(place).is_some_and(|sum| sum.1 <= OFTEN * sum.0);
        places
            .into_iter()
            .filter(|place| often(place) && !orders(*place))
            .collect()
    }

    /// When threads visit the contended lines, the locks that guard them, and counters like them.
    fn visited(
        &self,
        estimates: &[(u64, Estimate)],
        sections: &Sections,
        orders: impl Fn(u64) -> bool,
    ) -> Vec<ContendedVisits> {
        let mut rows = Vec::new();
        let mut locks = BTreeSet::new();
        for (line, found) in estimates {
            if let Some((word, parity)) = found.lock
                && locks.insert(word / self.size)
            {
                let (found, held) = visits::of_lock(&self.samples[line], sections, (word, parity));
                rows.extend(self.rows(word / self.size, found, (VisitedKind::Lock, held)));
            }
        }
        let counts = self.counts(estimates, orders);
        let is_counted = |access: &Access| {
            access.sample.kind == AccessKind::Atomic && counts.contains(&access.sample.place)
        };
        for (at, (line, _)) in estimates.iter().enumerate() {
            if locks.contains(line) {
                continue;
            }
            let detail = match at < DETAILED {
                true => Detail::Full,
                false => Detail::Less,
            };
            let kind = match self.samples[line].iter().any(is_counted) {
                true => VisitedKind::Counter,
                false => VisitedKind::Data,
            };
            let visits = visits::visits(&self.samples[line], detail);
            rows.extend(self.rows(*line, visits, (kind, 0)));
        }
        let listed: BTreeSet<u64> = estimates.iter().map(|(line, _)| *line).collect();
        let is_other = |line: &u64| !listed.contains(line) && !locks.contains(line);
        let others = self.samples.iter().filter(|(line, _)| is_other(line));
        let counted = others.filter_map(|(line, samples)| {
            let counted = samples.iter().filter(|access| is_counted(access));
            let counted: Vec<Access> = counted.copied().collect();
            (!counted.is_empty()).then_some((*line, counted))
        });
        for (line, counted) in counted.take(COUNTERS) {
            let visits = visits::visits(&counted, Detail::Least);
            rows.extend(self.rows(line, visits, (VisitedKind::Counter, 0)));
        }
        rows
    }
}
