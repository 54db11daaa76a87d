//! Windows: a trace of a long run keeps all requests of short parts, spread over the run, and of the rest only what a
//! simulation needs to go on.
//!
//! The thread's clock is divided into intervals, which begin with a window. The first intervals are equally long, later
//! ones a sixteenth of the clock at their start, so their number grows with the logarithm of the run's length. Clocks
//! are joined at synchronisation, so the windows of all threads are at the same place in the program.
//!
//! | part | kept |
//! |---|---|
//! | window | every record |
//! | gap, the rest of an interval | synchronisation, creations and work; the first request for each page; the number of the other requests |
//! | before a window | the thread's last requests for the lines it used in the gap, in order, at most [`Windows::warm_lines`] lines: what caches and directory need ("memory timestamp record": Barr and others, ISPASS 2005) |

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use crate::{Kind, Record};

/// Which windows a trace has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// Windows' share of the clock, in millionths.
    pub share_ppm: u32,
    /// Most lines of each thread that are kept before a window.
    pub warm_lines: u32,
}

impl Windows {
    /// Largest share, in millionths.
    pub const MOST_PPM: u32 = 500_000;
    /// Most lines before a window.
    pub const MOST_WARM_LINES: u32 = 1 << 24;

    /// Whether the values are within their limits.
    #[must_use]
    pub fn is_valid(self) -> bool {
        (1..=Self::MOST_PPM).contains(&self.share_ppm) && self.warm_lines <= Self::MOST_WARM_LINES
    }
}

/// Part of a windowed trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Requests are counted.
    Gap,
    /// The last requests for lines used before the window.
    Warm,
    /// All requests.
    Window,
}

/// A part and its interval, as value of a [`Kind::Part`] record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Number of the interval, from 0.
    pub interval: u32,
    /// The part that begins.
    pub part: Part,
}

impl Mark {
    fn value(self) -> u64 {
        u64::from(self.interval) << 2 | self.part as u64
    }

    /// The mark of a record's value; `None` for a value that is none.
    #[must_use]
    pub fn of(value: u64) -> Option<Self> {
        let part = match value & 3 {
            0 => Part::Gap,
            1 => Part::Warm,
            2 => Part::Window,
            _ => return None,
        };
        let interval = u32::try_from(value >> 2).ok()?;
        Some(Self { interval, part })
    }
}

/// Accesses of the shortest window: some hundred requests of each thread, if a few percent of accesses miss.
const SHORTEST: u64 = 4096;
/// Intervals are at least the clock at their start divided by this.
const GROWTH: u64 = 16;

/// The intervals, as a clock advances.
#[derive(Clone, Debug)]
struct Schedule {
    share_ppm: u64,
    number: u32,
    start: u64,
    length: u64,
}

impl Schedule {
    fn new(windows: Windows) -> Self {
        let share_ppm = u64::from(windows.share_ppm.max(1));
        Self {
            share_ppm,
            number: 0,
            start: 0,
            length: SHORTEST * 1_000_000 / share_ppm,
        }
    }

    /// The part that holds a clock that is not before the last one asked for.
    fn at(&mut self, clock: u64) -> Mark {
        while clock - self.start >= self.length {
            let Some(start) = self.start.checked_add(self.length) else {
                break;
            };
            self.start = start;
            self.length = self.length.max(start / GROWTH);
            self.number = self.number.saturating_add(1);
        }
        let window = (u128::from(self.length) * u128::from(self.share_ppm) / 1_000_000) as u64;
        let part = match clock - self.start < window.max(SHORTEST) {
            true => Part::Window,
            false => Part::Gap,
        };
        Mark {
            interval: self.number,
            part,
        }
    }
}

/// Reduces a thread's records to windows.
#[derive(Clone, Debug)]
pub struct Thinner {
    schedule: Schedule,
    clock: u64,
    mark: Option<Mark>,
    /// Requests left out since the last record, and work not in a record yet.
    omitted: u64,
    work: u64,
    pages: HashSet<u64, Fast>,
    /// log2 of the lines of a page of 4 KiB.
    page_shift: u32,
    recent: Recent,
}

impl Thinner {
    /// A thread whose clock starts at `clock`.
    #[must_use]
    pub fn new(windows: Windows, line_shift: u32, clock: u64) -> Self {
        Self {
            schedule: Schedule::new(windows),
            clock,
            mark: None,
            omitted: 0,
            work: 0,
            pages: HashSet::default(),
            page_shift: 12u32.saturating_sub(line_shift),
            recent: Recent::new(windows.warm_lines as usize),
        }
    }

    /// Appends what is kept of the records.
    pub fn thin(&mut self, records: &[Record], out: &mut Vec<Record>) {
        for &record in records {
            self.one(record, out);
        }
    }

    /// Appends what is pending, as the thread's trace ends or is sent.
    pub fn flush(&mut self, out: &mut Vec<Record>) {
        if self.omitted > 0 || self.work > 0 {
            let work = std::mem::take(&mut self.work);
            out.push(Record::new(
                Kind::Omitted,
                std::mem::take(&mut self.omitted),
                work,
            ));
        }
    }

    fn one(&mut self, record: Record, out: &mut Vec<Record>) {
        let (kind, value) = (record.kind(), record.value());
        self.clock = self.clock.saturating_add(record.work);
        if kind == Kind::Clock {
            self.clock = self.clock.saturating_add(value);
        }
        let mark = self.schedule.at(self.clock);
        if self.mark != Some(mark) {
            self.turn(mark, out);
        }
        if !kind.is_request() {
            self.flush(out);
            out.push(record);
            return;
        }
        let is_new_page = kind != Kind::WriteBack && self.pages.insert(value >> self.page_shift);
        if mark.part == Part::Window {
            out.push(record);
            return;
        }
        self.recent.add(kind, value);
        if is_new_page {
            self.flush(out);
            out.push(record);
        } else {
            self.omitted += 1;
            self.work += record.work;
        }
    }

    /// Begins another part.
    fn turn(&mut self, mark: Mark, out: &mut Vec<Record>) {
        self.flush(out);
        let marked = |part| Record::new(Kind::Part, Mark { part, ..mark }.value(), 0);
        if mark.part == Part::Window {
            out.push(marked(Part::Warm));
            self.recent.take(out);
        }
        out.push(marked(mark.part));
        self.mark = Some(mark);
    }
}

/// The last requests of a thread for the lines that it used since the last window.
#[derive(Clone, Debug)]
struct Recent {
    most: usize,
    stamp: u64,
    /// By line: when it was last requested, and how ([`READ`], [`WRITTEN`], [`WRITTEN_BACK`]).
    lines: HashMap<u64, (u64, u8), Fast>,
}

/// Read after it was written back, or only read.
const READ: u8 = 4;
const WRITTEN_BACK: u8 = 2;
const WRITTEN: u8 = 1;

impl Recent {
    fn new(most: usize) -> Self {
        Self {
            most,
            stamp: 0,
            lines: HashMap::default(),
        }
    }

    fn add(&mut self, kind: Kind, line: u64) {
        if self.most == 0 {
            return;
        }
        self.stamp += 1;
        let (stamp, state) = self.lines.entry(line).or_default();
        *stamp = self.stamp;
        match kind {
            Kind::Read if *state != WRITTEN => *state |= READ,
            Kind::Read => {}
            Kind::WriteBack => *state = *state & WRITTEN | WRITTEN_BACK,
            _ => *state = WRITTEN,
        }
        if self.lines.len() >= 2 * self.most {
            self.keep();
        }
    }

    /// Drops the older lines.
    fn keep(&mut self) {
        if self.lines.len() <= self.most {
            return;
        }
        let mut stamps: Vec<u64> = self.lines.values().map(|(stamp, _)| *stamp).collect();
        let oldest = stamps.len() - self.most;
        let (_, &mut first, _) = stamps.select_nth_unstable(oldest);
        self.lines.retain(|_, (stamp, _)| *stamp >= first);
    }

    /// Appends the requests that lead to the same state, the oldest first, and forgets them.
    fn take(&mut self, out: &mut Vec<Record>) {
        self.keep();
        let mut lines: Vec<(u64, u64, u8)> = self
            .lines
            .drain()
            .map(|(line, (stamp, state))| (stamp, line, state))
            .collect();
        lines.sort_unstable();
        for (_, line, state) in lines {
            for (bit, kind) in [
                (WRITTEN, Kind::Write),
                (WRITTEN_BACK, Kind::WriteBack),
                (READ, Kind::Read),
            ] {
                if state & bit != 0 {
                    out.push(Record::new(kind, line, 0));
                }
            }
        }
    }
}

type Fast = BuildHasherDefault<Multiplied>;

/// Hashes a line or page number by one multiplication.
#[derive(Clone, Default)]
struct Multiplied(u64);

impl Hasher for Multiplied {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        let product = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ product >> 32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TENTH: Windows = Windows {
        share_ppm: 100_000,
        warm_lines: 100,
    };

    fn thinned(windows: Windows, records: &[Record]) -> Vec<Record> {
        let mut thinner = Thinner::new(windows, 6, 0);
        let mut out = Vec::new();
        thinner.thin(records, &mut out);
        thinner.flush(&mut out);
        out
    }

    #[test]
    fn intervals_are_equal_first_and_then_grow_with_the_clock() {
        let mut schedule = Schedule::new(TENTH);
        let mut windows = 0;
        let mut accesses = 0;
        for clock in (0..100_000_000).step_by(512) {
            let mark = schedule.at(clock);
            windows = mark.interval + 1;
            accesses += u64::from(mark.part == Part::Window) * 512;
        }
        // 16 of 40,960, and then 16 for each factor e.
        let expected = 16.0 + 16.5 * (1e8f64 / (16.0 * 40_960.0)).ln();
        assert!(
            (f64::from(windows) / expected - 1.0).abs() < 0.05,
            "{windows} {expected}"
        );
        assert!((accesses as f64 / 1e7 - 1.0).abs() < 0.05, "{accesses}");
    }

    #[test]
    fn a_gap_keeps_counts_synchronisation_and_the_first_request_for_a_page() {
        let request = |kind, line| Record::new(kind, line, 1000);
        let mut records: Vec<Record> = (0..5).map(|at| request(Kind::Read, at % 2)).collect();
        records.extend([
            request(Kind::Write, 0),
            request(Kind::Release, 77),
            request(Kind::Read, 640),
            request(Kind::Read, 641),
            request(Kind::WriteBack, 0),
        ]);
        records.push(Record::new(Kind::Read, 5, 35_000));
        let found = thinned(TENTH, &records);
        let mark = |interval, part| Record::new(Kind::Part, Mark { interval, part }.value(), 0);
        assert_eq!(
            found,
            [
                mark(0, Part::Warm),
                mark(0, Part::Window),
                request(Kind::Read, 0),
                request(Kind::Read, 1),
                request(Kind::Read, 0),
                request(Kind::Read, 1),
                mark(0, Part::Gap),
                Record::new(Kind::Omitted, 2, 2000),
                request(Kind::Release, 77),
                request(Kind::Read, 640),
                Record::new(Kind::Omitted, 2, 2000),
                mark(1, Part::Warm),
                Record::new(Kind::Read, 640, 0),
                Record::new(Kind::Read, 641, 0),
                Record::new(Kind::Write, 0, 0),
                Record::new(Kind::WriteBack, 0, 0),
                mark(1, Part::Window),
                Record::new(Kind::Read, 5, 35_000),
            ]
        );
    }

    #[test]
    fn only_the_most_recent_lines_are_kept_before_a_window() {
        let mut records: Vec<Record> = (0..1000)
            .map(|at| Record::new(Kind::Read, at, 36))
            .collect();
        records.push(Record::new(Kind::Read, 7, 5000));
        let found = thinned(TENTH, &records);
        let is_of_second = |record: &&Record| record.kind() == Kind::Part && record.value() == 5;
        let warm = found
            .iter()
            .skip_while(|record| !is_of_second(record))
            .skip(1);
        let lines: Vec<u64> = warm.take(100).map(|record| record.value()).collect();
        assert_eq!(lines, (900..1000).collect::<Vec<u64>>());
    }

    proptest! {
        /// Nothing gets lost: clock, requests and synchronisation are those of all records, however they are batched.
        #[test]
        fn clocks_requests_and_synchronisation_are_kept(
            steps in proptest::collection::vec((0usize..8, 0u64..500, 0u64..3000), 1..400),
            batch in 1usize..50,
            share_ppm in 1u32..=Windows::MOST_PPM,
        ) {
            let windows = Windows { share_ppm, warm_lines: 20 };
            let records: Vec<Record> = steps.iter().map(|&(kind, value, work)| Record::new(Kind::ALL[kind], value, work)).collect();
            let whole = thinned(windows, &records);
            let mut thinner = Thinner::new(windows, 6, 0);
            let mut found = Vec::new();
            records.chunks(batch).for_each(|records| thinner.thin(records, &mut found));
            thinner.flush(&mut found);
            prop_assert_eq!(&found, &whole);
            let work = |records: &[Record]| records.iter().map(|record| record.work).sum::<u64>();
            prop_assert_eq!(work(&found), work(&records));
            let mut is_warm = false;
            let mut requests = 0;
            let mut others = Vec::new();
            for record in found {
                match record.kind() {
                    Kind::Part => is_warm = Mark::of(record.value()).unwrap().part == Part::Warm,
                    Kind::Omitted => requests += record.value(),
                    kind if kind.is_request() => requests += u64::from(!is_warm),
                    _ => others.push(record),
                }
            }
            prop_assert_eq!(requests, records.iter().filter(|record| record.kind().is_request()).count() as u64);
            let expected: Vec<Record> = records.into_iter().filter(|record| !record.kind().is_request()).collect();
            prop_assert_eq!(others, expected);
        }
    }
}
