//! Contended lines: the recorded visits of threads take the place of the recorded requests.
//!
//! How often a line of which several threads write moved in the recording depends on how the host ran the threads. So
//! its requests are left out, but each thread's first, and the visits that the profile has estimated
//! ([`ContendedVisits`]) are put into the threads' events instead, evenly spread; which of them finds the line where it
//! was shows the simulation. A core goes on for some accesses while it waits for a line, so visits that close to each
//! other are one; atomic instructions are one each.
//!
//! The order in which threads took a lock, or changed a counter by atomic instructions, was the host's choice too: such
//! words order nothing here, and a lock's line is held instead.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use numaloc_model::ThreadIdx;
use numaloc_model::profile::{ContendedVisits, VisitedKind};
use numaloc_model::trace::{Action, Event};

use super::TraceBuilder;
use crate::event::{Packed, Visit, WORK_BITS};
use crate::windows::only_work;

/// Accesses within which plain visits of a thread are one: what a core does while it waits for a line.
const ONE_VISIT: f64 = 64.0;
/// Most visits of a trace, 8 bytes each. If there are more, each stands for several.
const MOST_VISITS: f64 = (1 << 24) as f64;

/// A contended line of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) number: u32,
    /// Accesses for which a thread has a lock.
    pub(crate) held: u64,
}

/// A thread's visits to a line that are evenly spread.
#[derive(Clone, Copy, Debug)]
struct Row {
    line: u64,
    from: f64,
    until: f64,
    /// Accesses between two visits.
    apart: f64,
    /// Share of the visits that write; the rest of them that is owed.
    writes: f64,
    owed: f64,
    visit: Visit,
}

/// The visits of all threads, while a trace is built.
#[derive(Clone, Debug, Default)]
pub(super) struct Visits {
    /// Lines whose requests are left out.
    lines: HashSet<u64>,
    /// Threads and lines of which one request has been kept.
    kept: HashSet<(u32, u64)>,
    /// Lines whose words order nothing.
    unordered: HashSet<u64>,
    word_shift: u32,
    /// Accesses for which locks are held, by line.
    held: HashMap<u64, u64>,
    rows: Vec<Row>,
    /// By thread: its accesses before the next visit of a row.
    next: Vec<BinaryHeap<Reverse<(u64, usize)>>>,
    /// How many visits each one stands for.
    stands_for: u64,
    /// Accesses for which the lines that are visited are held, by their numbers until the trace is complete.
    pub(super) found: HashMap<u32, u64>,
}

impl Visits {
    fn new(rows: &[ContendedVisits], threads: usize, line_bytes: u64) -> Self {
        let orders = |row: &&ContendedVisits| row.kind == VisitedKind::Data;
        let mut visits = Self {
            lines: rows.iter().map(|row| row.line).collect(),
            unordered: rows
                .iter()
                .filter(|row| !orders(row))
                .map(|row| row.line)
                .collect(),
            word_shift: (line_bytes / 4).max(1).trailing_zeros(),
            next: vec![BinaryHeap::new(); threads],
            ..Self::default()
        };
        for lock in rows.iter().filter(|row| row.kind == VisitedKind::Lock) {
            let held = visits.held.entry(lock.line).or_default();
            *held = (*held).max(lock.held);
        }
        let all: f64 = rows.iter().flat_map(spread).map(|row| row.number()).sum();
        visits.stands_for = (all / MOST_VISITS).ceil().max(1.0) as u64;
        for row in rows.iter().filter(|row| row.thread.index() < threads) {
            for mut spread in spread(row) {
                spread.apart *= visits.stands_for as f64;
                let of_thread = &mut visits.next[row.thread.index()];
                of_thread.push(Reverse((row.from, visits.rows.len())));
                visits.rows.push(spread);
            }
        }
        visits
    }

    /// How many visits each one of the trace stands for.
    pub(super) fn stands_for(&self) -> u64 {
        self.stands_for.max(1)
    }

    /// What remains of an action: its request is one of a contended line, or orders threads that nothing orders.
    pub(super) fn remains(&mut self, thread: ThreadIdx, action: Action) -> Action {
        if self.lines.is_empty() {
            return action;
        }
        let stays = match action {
            Action::Read(line) | Action::Write(line) | Action::Own(line) => {
                !self.lines.contains(&line) || self.kept.insert((thread.0, line))
            }
            Action::WriteBack(line) => !self.lines.contains(&line),
            Action::Acquire(word) | Action::Release(word) => {
                !self.unordered.contains(&(word >> self.word_shift))
            }
            _ => true,
        };
        match stays {
            true => action,
            false => Action::Omitted(0),
        }
    }

    /// The next visit of a thread up to a number of its accesses: after how many, how, and to which line.
    fn take(&mut self, thread: usize, until: u64) -> Option<(u64, Visit, u64)> {
        let heap = self.next.get_mut(thread)?;
        let &Reverse((accesses, at)) = heap.peek().filter(|Reverse((at, _))| *at <= until)?;
        heap.pop();
        let row = &mut self.rows[at];
        row.from += row.apart;
        if row.from < row.until {
            heap.push(Reverse((row.from as u64, at)));
        }
        row.owed += row.writes;
        let visit = match row.visit {
            Visit::Load if row.owed >= 1.0 => {
                row.owed -= 1.0;
                Visit::Store
            }
            visit => visit,
        };
        Some((accesses, visit, row.line))
    }
}

impl Row {
    fn number(&self) -> f64 {
        (self.until - self.from) / self.apart
    }
}

/// A row's visits by atomic instructions, and the others; those of locks are all of the first kind.
fn spread(row: &ContendedVisits) -> impl Iterator<Item = Row> + use<> {
    let span = row.until.saturating_sub(row.from).max(1) as f64;
    let (line, from) = (row.line, row.from as f64);
    let plain = row.visits.saturating_sub(row.atomics) as f64;
    let of = move |number: f64, visit, writes: f64| {
        let least = if visit == Visit::Load { ONE_VISIT } else { 1.0 };
        let each = span / number;
        let apart = each.max(least);
        (number > 0.0).then_some(Row {
            line,
            from,
            until: from + span,
            apart,
            // One of several visits that are one may write.
            writes: (writes * apart / each).min(1.0),
            owed: 0.0,
            visit,
        })
    };
    let writes = row.writes.saturating_sub(row.atomics) as f64 / plain.max(1.0);
    let single = match row.kind {
        VisitedKind::Lock => Visit::Lock,
        VisitedKind::Data | VisitedKind::Counter => Visit::Atomic,
    };
    [
        of(plain, Visit::Load, writes),
        of(row.atomics as f64, single, 1.0),
    ]
    .into_iter()
    .flatten()
}

impl TraceBuilder {
    /// Puts visits to contended lines in the place of their recorded requests. To be called before the first event;
    /// traces with windows are left as they are.
    #[must_use]
    pub fn with_visits(mut self, rows: &[ContendedVisits]) -> Self {
        self.visits = Visits::new(rows, self.threads.len(), self.line_bytes);
        self
    }

    /// Adds the visits that a thread makes within the work before an event; returns the work that is left, and what
    /// remains of the event's action.
    pub(super) fn push_visits(&mut self, thread: ThreadIdx, event: &Event) -> (u64, Action) {
        let mut left = event.work;
        if self.windows.is_some() {
            return (left, event.action);
        }
        let end = self.threads[thread.index()].accesses;
        let begin = end - event.work;
        while let Some((at, visit, line)) = self.visits.take(thread.index(), end) {
            let done = event.work - left;
            let mut work = at.saturating_sub(begin).clamp(done, event.work) - done;
            left -= work;
            let number = self.line(thread, line);
            let held = self.visits.held.get(&line).copied().unwrap_or(0);
            self.visits.found.insert(number, held);
            let events = &mut self.threads[thread.index()].events;
            if work >= 1 << WORK_BITS {
                events.extend(only_work(work));
                work = 0;
            }
            events.push(Packed::of_visit(visit, work, number));
            self.records += 1;
        }
        (left, self.visits.remains(thread, event.action))
    }
}
