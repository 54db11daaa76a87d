//! What a recorded run demands of a machine, before its threads and pages have places: accesses by thread and segment,
//! lines that leave a core's private cache, and lines that threads exchange.
//!
//! A segment is a slice of the profile, or several neighbouring ones if there are more than [`MOST_SEGMENTS`], or more
//! than a thousand threads. The clock of a profile is joined where threads synchronise, so that threads of one slice
//! work at the same time, and a thread that works alone has its slices to itself.
//!
//! **Private caches.** A page of a thread stays in its private cache if it has used at most as many others since as the
//! cache holds; then it costs nothing. Otherwise its lines miss: as many as it has accesses, at most all lines of the
//! page (a sweep reads the words of a line one after the other). If the thread used the page in the slice before too,
//! and the pages of the slice do not fit, it sweeps repeatedly: one pass for each load or store of every word.
//!
//! **Communication.** An event is a line that another thread wrote and this one loads. The page's rows count its line
//! too; which of them is taken depends on where the threads are: [`super::caches`]. Events carry no page: as many of
//! them as the thread's sweeps of written pages have lines are prefetched like those sweeps, less the share of lines
//! that threads contend for.

use numaloc_model::profile::{Amount, PageSliceRow, Profile};
use numaloc_model::{Layer, PageUsage, ThreadAccess, ThreadIdx};

use super::contended::{Contended, Contention, Exchange};

/// Largest number of segments.
const MOST_SEGMENTS: usize = 256;
/// Largest number of segments times threads: tables of the model have some 120 bytes for each. A script that executes
/// programs by the thousand has as many threads.
const MOST_CELLS: usize = 1 << 18;
/// Bytes of a word.
const WORD: u64 = 8;
/// A page visit with at least this share of the page's words is a sweep, which is prefetched.
const DENSE: u64 = 2;

/// A thread's use of a page in a slice, below its private cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub slice: u32,
    pub page: u32,
    pub thread: u32,
    /// Lines of the first pass, at most those of the page, and of further passes.
    pub first: u32,
    pub again: u32,
    /// Loads and stores, at most 2^32.
    pub accesses: u32,
    /// Share (0..=1) of the accesses that are stores.
    pub stores: f32,
    /// Whether the lines are prefetched.
    pub stream: bool,
    /// Whether another thread stores to the page.
    pub written: bool,
}

/// A thread's use of a page through which threads exchange lines, over the whole run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passage {
    pub page: u32,
    pub thread: u32,
    /// Lines, at most those of the page: that the thread stores to while others use the page, and that it loads while
    /// others store to the page.
    pub stored: u32,
    pub loaded: u32,
}

/// The demand of a run; see the module documentation.
#[derive(Clone, Debug)]
pub(super) struct Demand {
    pub threads: usize,
    pub segments: usize,
    /// Segments x threads: accesses.
    pub accesses: Vec<f64>,
    /// By slice, page and thread.
    pub rows: Vec<Row>,
    /// Segment of each slice of the rows; empty if the rows are of the whole run, whose lines are then distributed over
    /// the segments like each thread's accesses.
    pub segment_of: Vec<u32>,
    pub exchanges: Vec<Exchange>,
    pub passages: Vec<Passage>,
    /// Of the recorded exchanges, and of those that threads contend for.
    pub contention: [Contention; 2],
    /// Segments (one if the rows are of the whole run) x threads: lines received.
    pub received: Vec<f64>,
    /// The same cells: lines of the pages that the thread sweeps and another thread writes, once in each slice.
    pub swept: Vec<f64>,
    /// Lines of a page.
    pub lines_of_page: u32,
    pub page_bytes: u64,
}

impl Demand {
    /// Place of a row's segment and thread in [`Demand::received`].
    pub(super) fn cell(&self, row: &Row) -> usize {
        let segment = self.segment_of.get(row.slice as usize).copied();
        segment.unwrap_or(0) as usize * self.threads + row.thread as usize
    }

    /// Of a run on a machine with private caches of `private_bytes`.
    pub(super) fn of(profile: &Profile, layer: Layer, private_bytes: u64, line_bytes: u64) -> Self {
        let usage = profile.pages();
        let threads = profile.threads().len();
        let counted: u64 = profile.page_slices().iter().map(|row| row.accesses).sum();
        // Rows dropped for lack of memory would count as no accesses.
        let by_slice = counted > 0 && counted == usage.total();
        let whole;
        let rows = if by_slice {
            profile.page_slices()
        } else {
            whole = of_run(usage);
            &whole
        };
        let cache = Caches {
            usage,
            room: private_bytes / usage.page_size().max(1),
            lines: (usage.page_size() / line_bytes.max(1)).max(1),
            words: (usage.page_size() / WORD).max(1),
            repeats: !by_slice,
        };
        let time = Segments::of(profile, by_slice);
        let mut accesses = vec![0.0; time.count * threads];
        for &(segment, thread, count) in &time.accesses {
            accesses[segment * threads + thread] += count;
        }
        let mut exchanges = exchanges(profile, layer, &time);
        let contention = match Amount::of_layer(layer) == Amount::Bytes {
            true => Default::default(),
            false => Contended::of(profile, &time.ends(threads)).replace(&mut exchanges),
        };
        let mut received = vec![0.0; threads * if by_slice { time.count } else { 1 }];
        for at in exchanges.iter().filter(|at| !at.contended) {
            let segment = if by_slice { at.segment as usize } else { 0 };
            received[segment * threads + at.dst as usize] += at.lines;
        }
        let segment_of = if by_slice { time.of_slice } else { Vec::new() };
        let passages = match exchanges.is_empty() {
            true => Vec::new(),
            false => passages(usage, cache.lines),
        };
        let prefetched = 1.0 - contention[0].all;
        let mut swept = vec![0.0; received.len()];
        let rows = cache.rows(rows, threads, |row, lines| {
            let segment = segment_of.get(row.slice.0 as usize).copied().unwrap_or(0);
            swept[segment as usize * threads + row.thread.index()] += lines * prefetched;
        });
        Self {
            threads,
            segments: time.count,
            accesses,
            rows,
            swept,
            exchanges,
            passages,
            contention,
            received,
            segment_of,
            lines_of_page: cache.lines as u32,
            page_bytes: usage.page_size(),
        }
    }
}

/// Uses of the pages that a thread stores to and another one uses.
fn passages(usage: &PageUsage, lines_of_page: u64) -> Vec<Passage> {
    let mut found = Vec::new();
    for (at, page) in usage.pages().iter().enumerate() {
        let accesses = usage.accesses(page);
        let writers = Writers::of(accesses);
        if accesses.len() < 2 || matches!(writers, Writers::None) {
            continue;
        }
        found.extend(accesses.iter().map(|access| {
            let others_store = writers.is_more_than(access.thread);
            let loads = if others_store { access.reads } else { 0 };
            Passage {
                page: at as u32,
                thread: access.thread.0,
                stored: access.writes.min(lines_of_page) as u32,
                loaded: loads.min(lines_of_page) as u32,
            }
        }));
    }
    found
}

/// The use of the whole run as rows of one slice.
fn of_run(usage: &PageUsage) -> Vec<PageSliceRow> {
    let pages = usage.pages().iter().enumerate();
    pages
        .flat_map(|(at, page)| {
            let accesses = usage.accesses(page).iter();
            accesses.map(move |access| PageSliceRow {
                slice: numaloc_model::SliceIdx(0),
                page: at as u32,
                thread: access.thread,
                accesses: access.total(),
            })
        })
        .collect()
}

/// Largest number of segments for a number of threads.
fn most_segments(threads: usize) -> usize {
    (MOST_CELLS / threads.max(1)).clamp(1, MOST_SEGMENTS)
}

/// Which slice belongs to which segment, and the accesses in each.
struct Segments {
    count: usize,
    /// By slice of the profile.
    of_slice: Vec<u32>,
    /// `(segment, thread, accesses)`.
    accesses: Vec<(usize, usize, f64)>,
}

impl Segments {
    /// Slices in which accesses were counted each begin a segment; those without belong to the one before. If there are
    /// too many, neighbours are united.
    fn of(profile: &Profile, by_slice: bool) -> Self {
        let rows = profile.accesses_by_slice();
        let slices = profile.slices().len().max(1);
        let counted: u64 = rows.iter().map(|row| row.accesses).sum();
        if !by_slice && (counted == 0 || counted < profile.pages().total() / 2) {
            return Self::one(profile, slices);
        }
        let mut begins = vec![false; slices];
        for row in &rows {
            if let Some(begin) = begins.get_mut(row.slice.0 as usize) {
                *begin = true;
            }
        }
        let found = begins.iter().filter(|&&begins| begins).count().max(1);
        let count = found.min(most_segments(profile.threads().len()));
        let mut at: usize = 0;
        let of_slice: Vec<u32> = begins
            .iter()
            .map(|&begins| {
                at += usize::from(begins);
                (at.saturating_sub(1) * count / found) as u32
            })
            .collect();
        let accesses = rows.iter().filter_map(|row| {
            let segment = *of_slice.get(row.slice.0 as usize)?;
            Some((segment as usize, row.thread.index(), row.accesses as f64))
        });
        Self {
            count,
            accesses: accesses.collect(),
            of_slice,
        }
    }

    /// By thread: its accesses until the end of each segment.
    fn ends(&self, threads: usize) -> Vec<Vec<f64>> {
        let mut sums = vec![vec![0.0; self.count]; threads];
        for &(segment, thread, count) in &self.accesses {
            sums[thread][segment] += count;
        }
        for of_thread in &mut sums {
            let mut sum = 0.0;
            for one in of_thread {
                sum += *one;
                *one = sum;
            }
        }
        sums
    }

    /// The whole run as one segment.
    fn one(profile: &Profile, slices: usize) -> Self {
        let mut of_thread = vec![0.0; profile.threads().len()];
        for page in profile.pages().pages() {
            for access in profile.pages().accesses(page) {
                of_thread[access.thread.index()] += access.total() as f64;
            }
        }
        for (sum, thread) in of_thread.iter_mut().zip(profile.threads()) {
            *sum = f64::max(*sum, thread.accesses as f64);
        }
        let of_thread = of_thread.into_iter().enumerate();
        Self {
            count: 1,
            of_slice: vec![0; slices],
            accesses: of_thread
                .map(|(thread, count)| (0, thread, count))
                .collect(),
        }
    }
}

/// Lines exchanged by segment and pair.
fn exchanges(profile: &Profile, layer: Layer, time: &Segments) -> Vec<Exchange> {
    if Amount::of_layer(layer) == Amount::Bytes {
        return Vec::new();
    }
    let rows = profile.communication().iter();
    let mut found: Vec<Exchange> = rows
        .filter(|row| layer.holds(row.layer) && row.src != row.dst && row.events > 0)
        .filter_map(|row| {
            Some(Exchange {
                segment: *time.of_slice.get(row.slice.0 as usize)?,
                src: row.src.0,
                dst: row.dst.0,
                lines: row.events as f64,
                contended: false,
            })
        })
        .collect();
    found.sort_by_key(|at| (at.segment, at.src, at.dst));
    found.dedup_by(|again, first| {
        let same = (again.segment, again.src, again.dst) == (first.segment, first.src, first.dst);
        if same {
            first.lines += again.lines;
        }
        same
    });
    found
}

/// The threads' private caches.
struct Caches<'a> {
    usage: &'a PageUsage,
    /// Pages of a cache.
    room: u64,
    /// Lines and words of a page.
    lines: u64,
    words: u64,
    /// Whether rows are of a whole run, in which pages that do not fit are swept repeatedly.
    repeats: bool,
}

/// A thread's last use of a page.
#[derive(Clone, Copy, Default)]
struct Last {
    /// Slice plus one; 0 before the first.
    slice: u32,
    /// Pages that the thread had used.
    clock: u32,
}

/// Threads that store to a page.
#[derive(Clone, Copy)]
enum Writers {
    None,
    One(ThreadIdx),
    Several,
}

impl Writers {
    fn of(accesses: &[ThreadAccess]) -> Self {
        let mut found = accesses.iter().filter(|access| access.writes > 0);
        match (found.next(), found.next()) {
            (None, _) => Self::None,
            (Some(one), None) => Self::One(one.thread),
            _ => Self::Several,
        }
    }

    /// Whether others than `thread` are among them.
    fn is_more_than(self, thread: ThreadIdx) -> bool {
        match self {
            Self::None => false,
            Self::One(one) => one != thread,
            Self::Several => true,
        }
    }
}

impl Caches<'_> {
    /// Rows below private caches; `sweep` receives each sweep of a page that another thread writes, with its lines.
    fn rows(
        &self,
        rows: &[PageSliceRow],
        threads: usize,
        mut sweep: impl FnMut(&PageSliceRow, f64),
    ) -> Vec<Row> {
        let mut start = Vec::with_capacity(self.usage.pages().len());
        let mut cells = 0;
        for page in self.usage.pages() {
            start.push(cells);
            cells += self.usage.accesses(page).len();
        }
        let mut last = vec![Last::default(); cells];
        let pages = self.usage.pages().iter();
        let writers: Vec<Writers> = pages
            .map(|page| Writers::of(self.usage.accesses(page)))
            .collect();
        let mut clock = vec![0_u32; threads];
        let mut here = vec![0_u64; threads];
        let mut found = Vec::new();
        for slice in rows.chunk_by(|a, b| a.slice == b.slice) {
            here.fill(0);
            for row in slice {
                here[row.thread.index()] += 1;
            }
            for row in slice.iter().filter(|row| row.accesses > 0) {
                let Some((whole, at)) = self.cell(row, &start) else {
                    continue;
                };
                let written = writers[row.page as usize].is_more_than(row.thread);
                let thread = row.thread.index();
                let before = std::mem::replace(
                    &mut last[at],
                    Last {
                        slice: row.slice.0 + 1,
                        clock: clock[thread],
                    },
                );
                let since = u64::from(clock[thread].wrapping_sub(before.clock));
                clock[thread] = clock[thread].wrapping_add(1);
                let fits = here[thread] <= self.room;
                let again = before.slice == row.slice.0 && before.slice > 0 || self.repeats;
                let stays = before.slice > 0 && since <= self.room;
                if written && row.accesses * DENSE >= self.words {
                    sweep(row, self.lines as f64);
                }
                let lines = self.row(row, &whole, stays, again && !fits);
                found.extend(lines.map(|lines| Row { written, ..lines }));
            }
        }
        found
    }

    /// A row's thread's accesses to its page over the whole run, and their cell.
    fn cell(&self, row: &PageSliceRow, start: &[usize]) -> Option<(ThreadAccess, usize)> {
        let page = self.usage.pages().get(row.page as usize)?;
        let accesses = self.usage.accesses(page);
        let at = accesses
            .binary_search_by_key(&row.thread, |access| access.thread)
            .ok()?;
        Some((accesses[at], start[row.page as usize] + at))
    }

    fn row(
        &self,
        row: &PageSliceRow,
        whole: &ThreadAccess,
        stays: bool,
        repeats: bool,
    ) -> Option<Row> {
        let stores = whole.writes as f32 / whole.total().max(1) as f32;
        let share = f64::from(stores.max(1.0 - stores));
        let lines = ((row.accesses as f64 * share).ceil() as u64).clamp(1, self.lines);
        let passes = (row.accesses as f64 * share / self.words as f64).round();
        let further = if repeats {
            (passes - 1.0).max(0.0)
        } else {
            0.0
        };
        let most = f64::from(u32::MAX);
        let again = (further * lines as f64).min(most) as u32;
        let first = if stays { 0 } else { lines as u32 };
        (first > 0 || again > 0).then_some(Row {
            slice: row.slice.0,
            page: row.page,
            thread: row.thread.0,
            first,
            again,
            accesses: row.accesses.min(u64::from(u32::MAX)) as u32,
            stores,
            stream: row.accesses * DENSE >= self.words,
            written: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Use, profile};
    use super::*;

    #[test]
    fn segments_are_fewer_where_threads_are_many() {
        for (threads, segments) in [(1, 256), (1024, 256), (2048, 128), (10_000, 26)] {
            // Each thread after the other, as in a script that executes programs.
            let last = threads.max(400) - 1;
            let used = |at: u32| -> Use { (at, at % threads, at % threads, 10) };
            let uses: Vec<Use> = (0..=last).map(used).collect();
            let profile = profile(threads, &uses, &[]);
            let demand = Demand::of(&profile, Layer::WriteRead, 1 << 20, 64);
            assert_eq!(demand.segments, segments, "{threads} threads");
            assert!(demand.accesses.len() <= MOST_CELLS);
            // Nothing is lost.
            let all: f64 = demand.accesses.iter().sum();
            assert_eq!(all, f64::from(last + 1) * 10.0);
        }
    }
}
