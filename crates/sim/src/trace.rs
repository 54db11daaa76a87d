//! The access trace in memory: 8 bytes per event, shared by any number of simulations.
//!
//! Lines are numbered from 0 by the order of their pages' addresses, so that neighbours stay neighbours and a line's
//! number can index a table; synchronisation words are numbered by first appearance. Each acquire stores the number of
//! releases of its word that preceded it in the recording: in a simulation it waits for that many, from any threads.
//! The recorded order satisfies every acquire, so no simulation deadlocks.

use std::collections::HashMap;
use std::hash::Hasher;

use numaloc_identity::{Step as PathStep, ThreadPath};
use numaloc_model::ThreadIdx;
use numaloc_model::pages::PageUsage;
use numaloc_model::trace::{Action, Event};

use crate::cache::MOST_LINES;
use crate::dense::{Dense, Multiply};
use crate::event::{Packed, Step, WORK_BITS};
use crate::placers::Placers;
use crate::windows::{Collector, Windowed, only_work};

pub(crate) mod contended;
mod flags;
#[cfg(test)]
mod tests;
mod windowed;

use contended::Visits;
use flags::set_flags;

/// Largest number of accesses of a trace: some twenty CPU hours at a nanosecond each.
const MOST_ACCESSES: u64 = 1 << 46;

/// Why a trace cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// More lines than can be numbered.
    #[error("the trace touches more than {MOST_LINES} lines of {line_bytes} bytes")]
    TooManyLines {
        /// Bytes of a line.
        line_bytes: u64,
    },
    /// More accesses than clocks can count.
    #[error("the trace has more than 2^46 accesses")]
    TooLong,
    /// More synchronisation events than 32 bits can number.
    #[error("the trace has more than 2^32 synchronisation events")]
    TooMuchSynchronisation,
    /// More intervals than a recorder makes.
    #[error("the trace has more than 2^20 intervals")]
    TooManyIntervals,
    /// Pages are not a multiple of lines.
    #[error("pages of {page_bytes} bytes do not hold whole lines of {line_bytes} bytes")]
    Pages {
        /// Bytes of a page.
        page_bytes: u64,
        /// Bytes of a line.
        line_bytes: u64,
    },
}

/// A thread of the trace.
#[derive(Clone, Debug)]
pub(crate) struct Thread {
    pub(crate) events: Vec<Packed>,
    /// Whether another thread's event creates it; the others run from the start.
    pub(crate) is_created: bool,
    /// Number of accesses, including those served by private caches.
    pub(crate) accesses: u64,
    /// By point of the trace: the first event that is not before it.
    pub(crate) points: Vec<u32>,
}

/// The memory requests of all threads of a program.
#[derive(Clone, Debug)]
pub struct Trace {
    pub(crate) threads: Vec<Thread>,
    /// Word and number of preceding releases, by acquire.
    pub(crate) acquires: Vec<(u32, u32)>,
    pub(crate) words: usize,
    /// Page numbers by dense number, ascending.
    pub(crate) pages: Vec<u64>,
    /// The only thread that uses each page, or another number.
    pub(crate) users: Vec<u32>,
    /// Log2 of the lines of a page.
    pub(crate) page_shift: u32,
    /// Clocks of the points that threads pass, ascending.
    pub(crate) points: Vec<u64>,
    line_bytes: u64,
    records: u64,
    /// Loads that missed, and those of them whose address comes from another fetch.
    loads: [u64; 2],
    /// The windows, if the trace has no requests but those of windows.
    pub(crate) windowed: Option<Windowed>,
    /// Who placed the pages.
    pub(crate) placers: Placers,
    /// Contended lines, ascending.
    pub(crate) contended: Vec<contended::Line>,
    /// How many visits to them each visit stands for.
    pub(crate) stands_for: u64,
}

impl Trace {
    /// Whether the trace has the requests of windows only.
    #[must_use]
    pub fn is_windowed(&self) -> bool {
        self.windowed.is_some()
    }

    /// Sets who placed the pages, as the recording has it: its pages have the size of the trace's.
    pub fn set_placers(&mut self, usage: &PageUsage) {
        self.placers = Placers::of(&self.pages, usage);
    }

    /// Number of threads.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Pages touched, ascending: address divided by the page size.
    #[must_use]
    pub fn pages(&self) -> &[u64] {
        &self.pages
    }

    /// Bytes of a page.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        self.line_bytes << self.page_shift
    }

    /// Bytes of a line.
    #[must_use]
    pub fn line_bytes(&self) -> u64 {
        self.line_bytes
    }

    /// Number of events.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Number of loads that missed the private caches, and of those whose address comes from another fetch that may
    /// still be under way; the latter is 0 if the trace does not say.
    #[must_use]
    pub fn dependent_loads(&self) -> (u64, u64) {
        (self.loads[0], self.loads[1])
    }

    /// Number of accesses of all threads.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        self.threads.iter().map(|thread| thread.accesses).sum()
    }

    /// The trace on pages of `page_bytes`, at least as large as its own: for machines with other pages than the
    /// recording machine.
    ///
    /// # Errors
    /// [`TraceError`] if pages are smaller or not a power of two of lines, or if the lines of all pages cannot be
    /// numbered.
    pub fn on_pages_of(mut self, page_bytes: u64) -> Result<Self, TraceError> {
        let lines = page_bytes / self.line_bytes;
        if !lines.is_power_of_two()
            || lines * self.line_bytes != page_bytes
            || page_bytes < self.page_bytes()
        {
            return Err(TraceError::Pages {
                page_bytes,
                line_bytes: self.line_bytes,
            });
        }
        let page_shift = lines.trailing_zeros();
        let (old, larger) = (self.page_shift, page_shift - self.page_shift);
        let mut pages: Vec<u64> = self.pages.iter().map(|page| page >> larger).collect();
        pages.dedup();
        if (pages.len() as u64) << page_shift > MOST_LINES {
            return Err(TraceError::TooManyLines {
                line_bytes: self.line_bytes,
            });
        }
        // The first line of each old page.
        let mut at = 0;
        let first: Vec<u32> = self
            .pages
            .iter()
            .map(|&page| {
                at += usize::from(pages[at] != page >> larger);
                let within = page & ((1 << larger) - 1);
                (at as u32) << page_shift | (within as u32) << old
            })
            .collect();
        let number = |line: u32| first[(line >> old) as usize] | line & ((1 << old) - 1);
        for event in self
            .threads
            .iter_mut()
            .flat_map(|thread| &mut thread.events)
        {
            if event.step().has_line() {
                *event = event.with_value(number(event.value()));
            }
        }
        for line in &mut self.contended {
            line.number = number(line.number);
        }
        if let Some(windowed) = &mut self.windowed {
            windowed.renumber(number);
        }
        (self.pages, self.page_shift) = (pages, page_shift);
        let windowed = self.windowed.as_mut();
        self.users = set_flags(&mut self.threads, windowed, self.pages.len(), page_shift);
        Ok(self)
    }

    /// Digest of all events, for recognising the trace; not resistant to forgery.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let mut digest = Multiply::default();
        for &(word, releases) in &self.acquires {
            digest.write_u64(u64::from(word) << 32 | u64::from(releases));
        }
        for &page in &self.pages {
            digest.write_u64(page);
        }
        for thread in &self.threads {
            digest.write_u64(thread.events.len() as u64);
            for event in &thread.events {
                digest.write_u64(event.bits());
            }
        }
        if let Some(windowed) = &self.windowed {
            windowed.digest(|number| digest.write_u64(number));
        }
        self.placers.digest(&mut digest);
        for line in &self.contended {
            digest.write_u64(line.held.wrapping_mul(self.stands_for));
        }
        digest.write_u64(self.line_bytes << self.page_shift);
        digest.finish()
    }

    /// Size of a table indexed by line number.
    pub(crate) fn lines(&self) -> usize {
        self.pages.len() << self.page_shift
    }
}

/// Builds a trace from events in recorded order.
#[derive(Debug)]
pub struct TraceBuilder {
    threads: Vec<Thread>,
    /// The page that each thread touched last: its number and its dense number.
    recent: Vec<(u64, u32)>,
    /// Thread that the n-th creation of a thread makes.
    children: HashMap<(u32, u64), u32>,
    acquires: Vec<(u32, u32)>,
    /// Dense number of a word.
    words: Dense,
    /// Releases of each word so far.
    releases: Vec<u32>,
    pages: Dense,
    page_shift: u32,
    line_bytes: u64,
    records: u64,
    accesses: u64,
    /// Clocks of the points at which a simulation may change something, ascending.
    points: Vec<u64>,
    error: Option<TraceError>,
    /// See [`Trace::dependent_loads`].
    loads: [u64; 2],
    windows: Option<Collector>,
    visits: Visits,
}

impl TraceBuilder {
    /// Creates a builder for threads with these paths (`0`, `0.1`, `0.1.2`; see `docs/identity.md`), lines of
    /// `line_bytes` and pages of `page_bytes`.
    ///
    /// # Errors
    /// [`TraceError::Pages`] if a page is not a power of two of lines.
    pub fn new<'a>(
        paths: impl IntoIterator<Item = &'a str>,
        line_bytes: u64,
        page_bytes: u64,
    ) -> Result<Self, TraceError> {
        let lines = page_bytes.checked_div(line_bytes).unwrap_or(0);
        if !lines.is_power_of_two() || lines * line_bytes != page_bytes {
            return Err(TraceError::Pages {
                page_bytes,
                line_bytes,
            });
        }
        let paths: Vec<&str> = paths.into_iter().collect();
        let index: HashMap<&str, u32> = paths
            .iter()
            .zip(0..)
            .map(|(path, at)| (*path, at))
            .collect();
        let mut threads = Vec::with_capacity(paths.len());
        let mut children = HashMap::new();
        for (path, at) in paths.iter().zip(0u32..) {
            let path = ThreadPath::new(path);
            if let (Some(creator), Some(PathStep::Thread(number))) =
                (path.creator(), path.last_step())
                && let Some(&creator) = index.get(creator.as_str())
            {
                children.insert((creator, number), at);
            }
            threads.push(Thread {
                events: Vec::new(),
                is_created: false,
                accesses: 0,
                points: Vec::new(),
            });
        }
        Ok(Self {
            recent: vec![(u64::MAX, 0); threads.len()],
            threads,
            children,
            acquires: Vec::new(),
            words: Dense::default(),
            releases: Vec::new(),
            pages: Dense::default(),
            page_shift: lines.trailing_zeros(),
            line_bytes,
            records: 0,
            accesses: 0,
            points: Vec::new(),
            error: None,
            loads: [0; 2],
            windows: None,
            visits: Visits::default(),
        })
    }

    /// Notes where each thread passes points of the recorded clock, for [`crate::Moves`]; to be called before the first
    /// event.
    #[must_use]
    pub fn with_points(mut self, mut clocks: Vec<u64>) -> Self {
        clocks.sort_unstable();
        clocks.dedup();
        self.points = clocks;
        self
    }

    /// Adds an event of `thread`; events come in the order of [`Event::time`], as
    /// `numaloc_formats::access_trace::Order` gives them.
    ///
    /// # Panics
    /// If there is no such thread.
    pub fn push(&mut self, thread: ThreadIdx, event: &Event) {
        let mut work = event.work;
        self.accesses = self.accesses.saturating_add(work);
        if self.accesses > MOST_ACCESSES {
            self.error.get_or_insert(TraceError::TooLong);
            return;
        }
        let state = &mut self.threads[thread.index()];
        state.accesses += work;
        while self
            .points
            .get(state.points.len())
            .is_some_and(|&point| event.time >= point)
        {
            state.points.push(state.events.len() as u32);
        }
        let (left, action) = self.push_visits(thread, event);
        work = left;
        let (step, value) = match action {
            Action::Read(line) => (Step::Read, self.line(thread, line)),
            Action::Write(line) => (Step::Write, self.line(thread, line)),
            Action::Own(line) => (Step::Own, self.line(thread, line)),
            Action::WriteBack(line) => (Step::WriteBack, self.line(thread, line)),
            Action::Acquire(word) => {
                let word = self.word(word);
                let before = self.releases[word as usize];
                if before == 0 {
                    // No release to wait for: the word's last release precedes the trace, or is in a process that is
                    // not in it.
                    (Step::Work, 0)
                } else {
                    self.acquires.push((word, before));
                    (Step::Acquire, (self.acquires.len() - 1) as u32)
                }
            }
            Action::Release(word) => {
                let word = self.word(word);
                self.releases[word as usize] += 1;
                (Step::Release, word)
            }
            Action::Create(number) => match self.children.get(&(thread.0, number)) {
                Some(&child) => {
                    self.threads[child as usize].is_created = true;
                    (Step::Create, child)
                }
                // A creation that failed.
                None => (Step::Work, 0),
            },
            Action::Part(part) => {
                self.begin(thread, part);
                (Step::Work, 0)
            }
            Action::Omitted(requests) => {
                if let Some(windows) = &mut self.windows {
                    windows.omit(thread.index(), requests);
                    self.records += requests;
                }
                (Step::Work, 0)
            }
            Action::End => {
                self.note_requests(thread);
                (Step::Work, 0)
            }
        };
        if self.acquires.len() > u32::MAX as usize - 1 {
            self.error.get_or_insert(TraceError::TooMuchSynchronisation);
        }
        let after = if step == Step::Read { event.after } else { 0 };
        self.loads[0] += u64::from(step == Step::Read);
        self.loads[1] += u64::from(after != 0);
        if self.windows.is_some() {
            self.push_windowed(thread, (step, after), work, value);
            return;
        }
        let events = &mut self.threads[thread.index()].events;
        if step == Step::Work || work >= 1 << WORK_BITS {
            events.extend(only_work(work));
            work = 0;
        }
        if step != Step::Work {
            events.push(Packed::new(step, work, value).after(after));
        }
        self.records += 1;
    }

    fn word(&mut self, word: u64) -> u32 {
        let next = self.releases.len() as u32;
        let word = *self.words.entry(word).or_insert(next);
        if word == next {
            self.releases.push(0);
        }
        word
    }

    /// A line's number while pages are still numbered by first appearance.
    #[inline]
    fn line(&mut self, thread: ThreadIdx, line: u64) -> u32 {
        let (page, within) = (line >> self.page_shift, line & ((1 << self.page_shift) - 1));
        let recent = &mut self.recent[thread.index()];
        if recent.0 != page {
            let next = self.pages.len() as u32;
            *recent = (page, *self.pages.entry(page).or_insert(next));
        }
        let dense = u64::from(recent.1) << self.page_shift | within;
        if dense >= MOST_LINES {
            self.error.get_or_insert(TraceError::TooManyLines {
                line_bytes: self.line_bytes,
            });
        }
        dense as u32
    }

    /// Completes the trace.
    ///
    /// # Errors
    /// [`TraceError`] if it is larger than the simulator's tables.
    pub fn finish(mut self) -> Result<Trace, TraceError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let mut by_address: Vec<(u64, u32)> =
            self.pages.iter().map(|(&page, &at)| (page, at)).collect();
        by_address.sort_unstable();
        let mut rank = vec![0u32; by_address.len()];
        for (at, &(_, first)) in by_address.iter().enumerate() {
            rank[first as usize] = at as u32;
        }
        let (shift, within) = (self.page_shift, (1u32 << self.page_shift) - 1);
        let number = |line: u32| rank[(line >> shift) as usize] << shift | line & within;
        let mut windowed = self.windows.map(|windows| {
            let mut windowed = windows.finish();
            windowed.renumber(number);
            windowed
        });
        for thread in &mut self.threads {
            for event in &mut thread.events {
                if event.step().has_line() {
                    *event = event.with_value(number(event.value()));
                }
            }
            thread.events.shrink_to_fit();
        }
        let found = std::mem::take(&mut self.visits.found).into_iter();
        let line = |(line, held)| contended::Line {
            number: number(line),
            held,
        };
        let mut contended: Vec<contended::Line> = found.map(line).collect();
        contended.sort_by_key(|line| line.number);
        let pages = by_address.len();
        let users = set_flags(&mut self.threads, windowed.as_mut(), pages, self.page_shift);
        Ok(Trace {
            users,
            threads: self.threads,
            points: self.points,
            acquires: self.acquires,
            words: self.releases.len(),
            pages: by_address.into_iter().map(|(page, _)| page).collect(),
            page_shift: self.page_shift,
            line_bytes: self.line_bytes,
            records: self.records,
            loads: self.loads,
            windowed,
            placers: Placers::default(),
            contended,
            stands_for: self.visits.stands_for(),
        })
    }
}
