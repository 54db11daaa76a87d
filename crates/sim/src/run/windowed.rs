//! Traces with windows: the windows are simulated one after the other, and the program's time is replayed with the
//! stalls that they had.
//!
//! 1. In recorded order: pages are placed by the first requests outside windows; a window's last requests before it
//!    change caches and directory; then its requests are simulated in detail, all threads from the same moment on and
//!    without synchronisation, as they run at the same time in the program.
//! 2. Each thread's work and synchronisation are replayed exactly. A request takes the mean stall of the thread's
//!    requests in the windows before and after it, pooled with those of all threads there.
//!
//! Counts are those of the windows, scaled to all requests. The stated error follows from what would have been
//! extrapolated for each window from its neighbours.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::request::ask;
use super::{Run, Stop, later};
use crate::event::Step;
use crate::line::Line;
use crate::machine::Place;
use crate::outcome::{Outcome, Sampled};
use crate::windows::{Slice, Windowed};

/// Share of a thread's requests in a window that fills queues, and is not measured.
const FILLING: f64 = 0.4;
/// Requests of all threads that a thread's own ones are pooled with.
const POOLED: f64 = 100.0;

/// What a thread did in the measured part of a window.
#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    /// Picoseconds.
    work: f64,
    stalled: f64,
    requests: f64,
}

impl Measured {
    fn add(&mut self, other: &Self) {
        self.work += other.work;
        self.stalled += other.stalled;
        self.requests += other.requests;
    }

    /// Picoseconds of stall per request, pooled with [`POOLED`] requests of all threads, whose stall is `usual` times
    /// as long for this thread; `None` if there are none.
    fn per_request(&self, all: &Self, usual: f64) -> Option<f64> {
        if all.requests <= 0.0 {
            return None;
        }
        let pooled = self.stalled + POOLED * usual * all.stalled / all.requests;
        Some(pooled / (self.requests + POOLED))
    }
}

/// Stalls to replay.
#[derive(Debug)]
pub(crate) struct Replay {
    /// Picoseconds per request, by interval and thread.
    stalls: Vec<Vec<f64>>,
    /// By thread: the next batch.
    next: Vec<usize>,
    requests: u64,
    detailed: u64,
    warmed: u64,
    windows: u64,
    error: f64,
}

/// A PU and the slices of its threads, in a window.
struct Lane {
    pu: usize,
    access: f64,
    slices: Vec<usize>,
    /// Index among `slices`, and of the next event.
    at: (usize, usize),
    /// Whether the work of the next event is done.
    worked: bool,
    now: u64,
}

impl Run<'_> {
    /// Simulates the windows.
    pub(crate) fn measure(&mut self, windowed: &Windowed) -> Replay {
        let threads = self.trace.threads();
        let mut now = 0;
        let mut touches = windowed.touches.iter().peekable();
        let (mut detailed, mut warmed) = (0u64, 0u64);
        let mut found: Vec<Vec<Measured>> = Vec::with_capacity(windowed.windows.len());
        for (interval, slices) in windowed.windows.iter().enumerate() {
            while let Some(touch) = touches.next_if(|touch| (touch.interval as usize) < interval) {
                let at = self.place_of(touch.thread);
                self.memory.touch(at, Line::new(touch.line, false), now);
            }
            warmed += self.warm_up(slices, now);
            let mut measured = vec![Measured::default(); threads];
            now = self.window(slices, now, &mut measured);
            let requests = slices.iter().flat_map(|slice| &slice.detail);
            detailed += requests.filter(|event| event.step().has_line()).count() as u64;
            found.push(measured);
        }
        for touch in touches {
            let at = self.place_of(touch.thread);
            self.memory.touch(at, Line::new(touch.line, false), now);
        }
        let requests = windowed.requests();
        let (windows, error) = error(&found);
        let unseen = 1.0 - detailed as f64 / requests.max(1) as f64;
        Replay {
            stalls: stalls(&found, threads),
            next: vec![0; threads],
            requests,
            detailed,
            warmed,
            windows,
            error: (error * unseen).min(1.0),
        }
    }

    fn place_of(&self, thread: u32) -> Place {
        self.machine.pus[self.scheduler.pu_of(thread)]
    }

    /// Changes caches and directory by the last requests before a window, those of all threads together at the same
    /// distance from it; returns their number. They do not count.
    fn warm_up(&mut self, slices: &[Slice], now: u64) -> u64 {
        let longest = slices.iter().map(|slice| slice.warm.len()).max();
        let counts = self.memory.counts();
        self.memory.is_functional = true;
        for before in (1..=longest.unwrap_or(0)).rev() {
            for slice in slices {
                let Some(at) = slice.warm.len().checked_sub(before) else {
                    continue;
                };
                let place = self.place_of(slice.thread);
                self.memory.request(place, slice.warm[at], now);
            }
        }
        self.memory.is_functional = false;
        self.memory.set_counts(counts);
        slices.iter().map(|slice| slice.warm.len() as u64).sum()
    }

    /// Simulates the requests of a window from `start` on; returns when all are complete. Threads that are slower than
    /// others are measured to their end, when the others have ended: as before a barrier.
    fn window(&mut self, slices: &[Slice], start: u64, measured: &mut [Measured]) -> u64 {
        let mut by_pu: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (at, slice) in slices.iter().enumerate() {
            let pu = self.scheduler.pu_of(slice.thread);
            by_pu.entry(pu).or_default().push(at);
        }
        let mut busy = vec![0u8; self.busy.len()];
        for &pu in by_pu.keys() {
            busy[self.machine.pus[pu].core as usize] += 1;
        }
        let mut lanes: Vec<Lane> = by_pu
            .into_iter()
            .map(|(pu, slices)| {
                let core = self.machine.pus[pu].core as usize;
                self.windows[pu].share(busy[core]);
                Lane {
                    pu,
                    access: self.access[usize::from(busy[core] > 1)],
                    slices,
                    at: (0, 0),
                    worked: false,
                    now: start,
                }
            })
            .collect();
        let mut next: BinaryHeap<Reverse<(u64, usize)>> = (0..lanes.len())
            .map(|lane| Reverse((start, lane)))
            .collect();
        let mut end = start;
        while let Some(Reverse((_, at))) = next.pop() {
            let earliest = next.peek().map_or(u64::MAX, |Reverse((clock, _))| *clock);
            let limit = earliest.saturating_add(self.quantum);
            let lane = &mut lanes[at];
            self.run_lane(lane, slices, limit, measured);
            if lane.at.0 < lane.slices.len() {
                next.push(Reverse((lane.now, at)));
            } else {
                end = end.max(self.windows[lane.pu].drain(lane.now));
            }
        }
        end
    }

    fn run_lane(
        &mut self,
        lane: &mut Lane,
        slices: &[Slice],
        limit: u64,
        measured: &mut [Measured],
    ) {
        loop {
            let Some(&slice) = lane.slices.get(lane.at.0) else {
                return;
            };
            let slice = &slices[slice];
            let Some(&event) = slice.detail.get(lane.at.1) else {
                lane.at = (lane.at.0 + 1, 0);
                continue;
            };
            let is_full = lane.at.1 as f64 >= FILLING * slice.detail.len() as f64;
            let measured = &mut measured[slice.thread as usize];
            if !lane.worked {
                let work = event.accesses();
                let begun = lane.now;
                lane.now = later(lane.now, work, lane.access);
                self.windows[lane.pu].work(work);
                measured.work += if is_full {
                    (lane.now - begun) as f64
                } else {
                    0.0
                };
            }
            lane.worked = lane.now > limit;
            if lane.worked {
                return;
            }
            lane.at.1 += 1;
            let is_request = event.step().has_line();
            let worked = lane.now;
            match event.step() {
                Step::Acquire | Step::Release => {
                    lane.now = self.windows[lane.pu].drain(lane.now);
                }
                _ if is_request => {
                    let window = &mut self.windows[lane.pu];
                    let place = self.machine.pus[lane.pu];
                    lane.now = ask(&mut self.memory, window, place, event, lane.now);
                }
                _ => {}
            }
            if is_full {
                measured.stalled += (lane.now - worked) as f64;
                measured.requests += f64::from(u8::from(is_request));
            }
        }
    }

    /// Replays a thread up to its next requests.
    pub(crate) fn replay(&mut self, pu: usize, core: usize, thread: u32) -> Stop {
        let limit = self.limit(pu);
        let (Some(replay), Some(windowed)) = (&mut self.replay, &self.trace.windowed) else {
            return self.run_thread::<true>(pu, core, thread, usize::MAX);
        };
        let batches = &windowed.batches[thread as usize];
        let at = self.next[thread as usize];
        let next = &mut replay.next[thread as usize];
        let clock = &mut self.pus[pu].clock;
        while let Some(batch) = batches.get(*next).filter(|batch| batch.at <= at) {
            let stall = replay.stalls[batch.interval as usize][thread as usize];
            *clock = later(*clock, batch.requests, stall);
            *next += 1;
        }
        let most = batches
            .get(*next)
            .map_or(usize::MAX, |batch| (batch.at - at) as usize);
        if *clock > limit {
            return Stop::Quantum;
        }
        self.run_thread::<true>(pu, core, thread, most)
    }
}

fn sum<'a>(of: impl IntoIterator<Item = &'a Measured>) -> Measured {
    of.into_iter().fold(Measured::default(), |mut all, one| {
        all.add(one);
        all
    })
}

/// How long each thread's requests stall in all windows, relative to the mean of all threads' there: threads on the
/// node of the data wait less than others.
fn usual(found: &[Vec<Measured>], threads: usize) -> Vec<f64> {
    let mut sums = vec![(0.0, 0.0); threads];
    for window in found {
        let all = sum(window);
        let mean = all.stalled / all.requests.max(1.0);
        for ((stalled, expected), own) in sums.iter_mut().zip(window) {
            *stalled += own.stalled;
            *expected += own.requests * mean;
        }
    }
    let ratio = |(stalled, expected): (f64, f64)| {
        if expected > 0.0 {
            stalled / expected
        } else {
            1.0
        }
    };
    sums.into_iter().map(ratio).collect()
}

/// Stall per request of each interval and thread: the mean of the windows before and after it.
fn stalls(found: &[Vec<Measured>], threads: usize) -> Vec<Vec<f64>> {
    let whole = sum(found.iter().flatten());
    let usual = usual(found, threads);
    let none = Measured::default();
    let of_all = |usual: &f64| none.per_request(&whole, *usual).unwrap_or(0.0);
    let mut last: Vec<f64> = usual.iter().map(of_all).collect();
    let of_windows: Vec<Vec<f64>> = found
        .iter()
        .map(|window| {
            let all = sum(window);
            for ((last, own), usual) in last.iter_mut().zip(window).zip(&usual) {
                *last = own.per_request(&all, *usual).unwrap_or(*last);
            }
            last.clone()
        })
        .collect();
    let after = of_windows.iter().skip(1).chain(of_windows.last());
    let mean = |(before, after): (&Vec<f64>, &Vec<f64>)| {
        let both = before.iter().zip(after);
        both.map(|(before, after)| f64::midpoint(*before, *after))
            .collect()
    };
    of_windows.iter().zip(after).map(mean).collect()
}

/// Number of windows that were compared with what their neighbours predict, and the error that follows: the mean and
/// 1.96 standard errors of the relative differences.
fn error(found: &[Vec<Measured>]) -> (u64, f64) {
    let (mut n, mut sums, mut squares) = (0.0, 0.0, 0.0);
    let usual = usual(found, found.first().map_or(0, Vec::len));
    for three in found.windows(3) {
        let [before, own, after] = three else {
            continue;
        };
        let all = sum(before.iter().chain(after));
        let (mut time, mut predicted) = (0.0, 0.0);
        for (thread, own) in own.iter().enumerate() {
            let mut near = before[thread];
            near.add(&after[thread]);
            let Some(stall) = near.per_request(&all, usual[thread]) else {
                continue;
            };
            time += own.work + own.stalled;
            predicted += own.work + own.requests * stall;
        }
        if predicted > 0.0 && time > 0.0 {
            let error: f64 = time / predicted - 1.0;
            n += 1.0;
            sums += error;
            squares += error * error;
        }
    }
    if n < 2.0 {
        return (n as u64, 1.0);
    }
    let mean = sums / n;
    let variance = (squares - n * mean * mean).max(0.0) / (n - 1.0);
    (n as u64, mean.abs() + 1.96 * (variance / n).sqrt())
}

impl Replay {
    /// The outcome with counts of windows scaled to all requests.
    pub(crate) fn scale(self, mut outcome: Outcome) -> Outcome {
        let factor = self.requests as f64 / self.detailed.max(1) as f64;
        let scale = |count: &mut u64| *count = (*count as f64 * factor).round() as u64;
        for node in &mut outcome.nodes {
            [
                &mut node.lines_read,
                &mut node.lines_written,
                &mut node.busy,
                &mut node.waited,
            ]
            .into_iter()
            .for_each(scale);
        }
        for group in &mut outcome.groups {
            scale(&mut group.hits);
            scale(&mut group.misses);
        }
        for link in &mut outcome.links {
            scale(&mut link.bytes);
            scale(&mut link.busy);
            scale(&mut link.waited);
        }
        let pairs = outcome.lines_by_node_pair.iter_mut();
        pairs
            .chain(&mut outcome.requests_by_node_pair)
            .for_each(scale);
        [
            &mut outcome.private_hits,
            &mut outcome.invalidations,
            &mut outcome.transfers_within,
            &mut outcome.transfers_between,
        ]
        .into_iter()
        .for_each(scale);
        if let Some(walks) = &mut outcome.walks {
            scale(&mut walks.count);
            scale(&mut walks.time);
        }
        outcome.sampled = Some(Sampled {
            detailed: self.detailed,
            warmed: self.warmed,
            records: self.requests,
            windows: self.windows,
            error: self.error,
        });
        outcome
    }
}
