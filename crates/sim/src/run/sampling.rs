//! Samples: windows of records are simulated in detail; between them, records only change the state of caches, and
//! their time is extrapolated.
//!
//! Windows are systematic, as in SMARTS (Wunderlich and others, ISCA 2003): the first records of each period of equally
//! many records of all threads. The rest of a period is *warmed*, or its first part is *skipped*:
//!
//! | part | caches, directory, page homes | time of a record |
//! |---|---|---|
//! | window | in detail | in detail, with queues, overlap and bandwidth |
//! | warmed | changed | its latency on an idle machine x the thread's mean stall per such latency in recent windows |
//! | skipped | only page homes | the thread's mean stall per record in recent windows and warmed parts |
//!
//! Work between records, synchronisation and creations of threads are exact everywhere. The first part of a window
//! fills queues and is not measured. The first creation of a thread begins a window and ends the use of what was seen
//! before. Each window's time is compared with what would have been extrapolated for it from
//! the windows before: from these errors follows that of the result ([`Sampled::error`]).

use super::{Run, Stop};
use crate::event::Packed;
use crate::machine::Place;
use crate::outcome::Sampled;
use crate::trace::Trace;

/// How a run is sampled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Share of the records that is simulated in detail.
    pub share: f64,
    /// Share of the other records that is warmed, up to the next window.
    pub warmed: f64,
}

/// Records of a window for each thread, if there are enough records.
const WINDOW_PER_THREAD: f64 = 128.0;
/// Fewest and largest number of windows.
const WINDOWS: (f64, f64) = (20.0, 1000.0);
/// Number of events after which the part may change at the latest.
const CHUNK: usize = 64;

/// Share of earlier windows' sums that is kept at each window.
const KEPT: f64 = 0.6;
/// Number of records of all threads that a thread's own ones are pooled with. A few records of a thread would give a
/// noisy ratio, and where threads wait for the slowest of them, noise lengthens the run.
const POOLED: f64 = 100.0;
/// Share of a window that fills queues and buffers, and is not measured.
const FILLING: f64 = 0.4;
/// Share of earlier sums that is kept when the first thread is created: what follows differs from what came before.
const KEPT_AT_CREATION: f64 = 1e-3;

/// Part of a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Filling,
    Measured,
    Skipped,
    Warmed,
}

/// Sums of a thread, of which each window keeps a part.
#[derive(Clone, Copy, Debug, Default)]
struct Stalls {
    /// Picoseconds of stalls in windows, and of latencies on an idle machine there.
    stalled: f64,
    idle: f64,
    /// The same latencies, also of warmed records, and the number of these records.
    idle_seen: f64,
    records: f64,
}

impl Stalls {
    fn add(&mut self, other: &Self) {
        self.stalled += other.stalled;
        self.idle += other.idle;
        self.idle_seen += other.idle_seen;
        self.records += other.records;
    }

    fn fade(&mut self, kept: f64) {
        for sum in [
            &mut self.stalled,
            &mut self.idle,
            &mut self.idle_seen,
            &mut self.records,
        ] {
            *sum *= kept;
        }
    }
}

/// The state of a sampled run.
#[derive(Debug)]
pub(crate) struct Sampler {
    period: u64,
    /// Where in a period each part but the last ends: filling, measured, skipped.
    ends: [u64; 3],
    /// Records so far.
    count: u64,
    /// Records so far and those by which windows began earlier than by their period.
    position: u64,
    part: Part,
    threads: Vec<Stalls>,
    all: Stalls,
    /// Picoseconds of the current window: in detail, and as they would have been extrapolated.
    window: (f64, f64),
    /// Relative errors of the extrapolation: number, sum, sum of squares.
    errors: (u64, f64, f64),
    detailed: u64,
    warmed: u64,
}

impl Sampler {
    pub(crate) fn new(sample: Sample, trace: &Trace) -> Self {
        let records = trace.records().max(1) as f64;
        let share = sample.share.clamp(1e-6, 1.0);
        let wanted = share * records / (WINDOW_PER_THREAD * trace.threads().max(1) as f64);
        let period = (records / wanted.clamp(WINDOWS.0, WINDOWS.1)).max(8.0);
        let window = (share * period).max(4.0);
        let skipped = (period - window).max(0.0) * (1.0 - sample.warmed.clamp(0.0, 1.0));
        Self {
            period: period as u64,
            ends: [FILLING * window, window, window + skipped].map(|at| at as u64),
            count: 0,
            position: 0,
            part: Part::Filling,
            threads: vec![Stalls::default(); trace.threads()],
            all: Stalls::default(),
            window: (0.0, 0.0),
            errors: (0, 0.0, 0.0),
            detailed: 0,
            warmed: 0,
        }
    }

    fn part_at(&self, position: u64) -> Part {
        let at = position % self.period;
        match self.ends.iter().position(|&end| at < end) {
            Some(0) => Part::Filling,
            Some(1) => Part::Measured,
            Some(_) => Part::Skipped,
            None => Part::Warmed,
        }
    }

    /// Goes on to the part of the next record.
    fn turn(&mut self) -> Part {
        let part = self.part_at(self.position);
        if part != self.part {
            if self.part == Part::Measured {
                self.close();
            }
            if part == Part::Filling {
                self.fade(KEPT);
            }
            self.part = part;
        }
        part
    }

    fn fade(&mut self, kept: f64) {
        let sums = self.threads.iter_mut().chain([&mut self.all]);
        sums.for_each(|sums| sums.fade(kept));
    }

    /// Records that the first thread is created.
    pub(crate) fn created(&mut self) {
        self.fade(KEPT_AT_CREATION);
        if matches!(self.part, Part::Skipped | Part::Warmed) {
            self.position = self.position.next_multiple_of(self.period);
        }
    }

    /// Ends a window: how far the extrapolation from the windows before would have been off.
    fn close(&mut self) {
        let (found, extrapolated) = std::mem::take(&mut self.window);
        if extrapolated > 0.0 && found > 0.0 {
            let error = found / extrapolated - 1.0;
            self.errors.0 += 1;
            self.errors.1 += error;
            self.errors.2 += error * error;
        }
    }

    /// Stall per latency on an idle machine of a thread, pooled with all threads.
    #[inline]
    fn ratio(&self, thread: u32) -> f64 {
        let (own, all) = (&self.threads[thread as usize], &self.all);
        if all.idle <= 0.0 {
            return 0.0;
        }
        let pooled = POOLED * all.idle_seen / all.records.max(1.0);
        (own.stalled + pooled * all.stalled / all.idle) / (own.idle + pooled)
    }

    /// Picoseconds of stall per skipped record of a thread.
    fn per_record(&self, thread: u32) -> f64 {
        let own = &self.threads[thread as usize];
        let of = if own.records > 0.0 { own } else { &self.all };
        self.ratio(thread) * of.idle_seen / of.records.max(1.0)
    }

    pub(crate) fn finish(mut self, records: u64) -> Sampled {
        self.close();
        let (windows, sum, squares) = self.errors;
        let n = windows as f64;
        let error = match windows {
            0 | 1 => 1.0,
            _ => {
                let mean = sum / n;
                let variance = (squares - n * mean * mean).max(0.0) / (n - 1.0);
                mean.abs() + 1.96 * (variance / n).sqrt()
            }
        };
        let extrapolated = 1.0 - self.detailed as f64 / self.count.max(1) as f64;
        Sampled {
            detailed: self.detailed,
            warmed: self.warmed,
            records: records.min(self.count),
            windows,
            error: (error * extrapolated).min(1.0),
        }
    }
}

impl Run<'_> {
    #[inline(always)]
    pub(crate) fn is_sampling(&self) -> bool {
        self.sampler.is_some()
    }

    /// Runs a thread for some events of the current part.
    pub(crate) fn run_sampled(&mut self, pu: usize, core: usize, thread: u32) -> Stop {
        let Some(sampler) = &mut self.sampler else {
            return self.run_thread::<true>(pu, core, thread, usize::MAX);
        };
        let part = sampler.turn();
        let is_detailed = matches!(part, Part::Filling | Part::Measured);
        self.memory.is_functional = !is_detailed;
        let before = (
            self.next[thread as usize],
            self.pus[pu].clock,
            self.windows[pu].accesses(),
            self.waited,
            self.memory.idle,
        );
        let access = self.access[usize::from(self.busy[core] > 1)];
        let stop = match is_detailed {
            true => self.run_thread::<true>(pu, core, thread, CHUNK),
            false => self.run_thread::<false>(pu, core, thread, CHUNK),
        };
        let events = u64::from(self.next[thread as usize] - before.0);
        let work = (self.windows[pu].accesses() - before.2) as f64 * access;
        let idle = (self.memory.idle - before.4) as f64;
        let elapsed = (self.pus[pu].clock - before.1) as f64 - (self.waited - before.3) as f64;
        let Some(sampler) = &mut self.sampler else {
            return stop;
        };
        sampler.count += events;
        sampler.position += events;
        match part {
            Part::Filling => sampler.detailed += events,
            Part::Measured => {
                sampler.detailed += events;
                let stalled = (elapsed - work).max(0.0);
                if sampler.threads[thread as usize].idle > 0.0 {
                    let extrapolated = sampler.ratio(thread) * idle;
                    sampler.window.0 += work + stalled;
                    sampler.window.1 += work + extrapolated;
                }
                sampler.add(
                    thread,
                    &Stalls {
                        stalled,
                        idle,
                        idle_seen: idle,
                        records: events as f64,
                    },
                );
            }
            Part::Warmed => {
                sampler.warmed += events;
                let seen = Stalls {
                    idle_seen: idle,
                    records: events as f64,
                    ..Stalls::default()
                };
                sampler.add(thread, &seen);
            }
            Part::Skipped => {}
        }
        stop
    }

    /// Changes the state of caches and pages as a request does; returns when the core continues by extrapolation.
    #[inline]
    pub(crate) fn warm(&mut self, at: Place, thread: u32, event: Packed, now: u64) -> u64 {
        let Some(sampler) = &self.sampler else {
            return now;
        };
        if sampler.part == Part::Skipped {
            let stall = sampler.per_record(thread);
            self.memory.touch(at, event.line(false), now);
            return now + stall as u64;
        }
        let ratio = sampler.ratio(thread);
        let before = self.memory.idle;
        self.memory.request(at, event, now);
        now + ((self.memory.idle - before) as f64 * ratio) as u64
    }
}

impl Sampler {
    fn add(&mut self, thread: u32, stalls: &Stalls) {
        self.threads[thread as usize].add(stalls);
        self.all.add(stalls);
    }
}
