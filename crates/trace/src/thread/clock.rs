//! Time: the profile's clock, quanta, slices and bursts.

use super::{LONGEST_QUANTUM, ThreadTracer, WALL_QUANTUM};
use crate::memory::Detail;
use numaloc_journal::bursts::Watch;

/// A thread's clock. Time passes with the accesses of a quantum, which are counted down elsewhere: `remaining` of them
/// are left. Where frontends count accesses by the path, these may be less than none: a negative number.
pub(super) struct Clock {
    /// Whether time is counted in accesses, otherwise in nanoseconds.
    is_virtual: bool,
    /// Virtual time at the end of this quantum.
    quantum_end: u64,
    /// Length of this quantum in accesses: `remaining` at its start.
    quantum: u64,
    /// Accesses before this quantum.
    pub accesses: u64,
    /// Wall time at the start of the quantum; wall clock only.
    wall: u64,
    pub slice_start: u64,
    pub slice_length: u64,
    /// Number of stores announced, and whether the last one is still to be recorded.
    pub announced: u64,
    pub underway: bool,
    /// The word last changed by an atomic instruction of a run-time library.
    pub lock: u64,
}

impl Clock {
    /// Offset of `quantum_end`, for generated code.
    pub const QUANTUM_END: usize = std::mem::offset_of!(Clock, quantum_end);

    /// A clock that shows `now` if it is virtual, otherwise `wall`.
    pub fn new(is_virtual: bool, now: u64, wall: u64) -> Self {
        Self {
            is_virtual,
            quantum_end: now,
            quantum: 0,
            accesses: 0,
            wall,
            slice_start: 0,
            slice_length: 1,
            announced: 0,
            underway: false,
            lock: 0,
        }
    }

    /// The present time.
    #[inline(always)]
    pub fn now(&self, remaining: u64) -> u64 {
        match self.is_virtual {
            true => self.quantum_end.wrapping_sub(remaining),
            false => self.wall,
        }
    }

    /// Accesses of this quantum so far.
    #[inline(always)]
    pub fn spent(&self, remaining: u64) -> u64 {
        self.quantum.wrapping_sub(remaining)
    }

    /// Takes back the time of an access that was just counted.
    #[inline(always)]
    pub fn take_back(&mut self) {
        self.quantum_end -= 1;
    }

    /// Moves the virtual clock forward without work.
    #[inline(always)]
    pub fn advance(&mut self, now: u64, remaining: u64) {
        self.accesses += self.spent(remaining);
        self.quantum = remaining;
        self.quantum_end = now.wrapping_add(remaining);
    }

    /// Whether a quantum that goes on at `now`, with `remaining` accesses, ends in this slice.
    #[inline(always)]
    pub fn is_within_slice(&self, now: u64, remaining: u64) -> bool {
        now.saturating_add(remaining) <= self.slice_start + self.slice_length
    }

    /// Ends the quantum this many accesses earlier, or later if they are negative.
    fn shorten(&mut self, accesses: u64) {
        self.quantum = self.quantum.wrapping_sub(accesses);
        self.quantum_end = self.quantum_end.wrapping_sub(accesses);
    }

    /// Ends the quantum at wall time `wall`; returns the time.
    fn end_quantum(&mut self, wall: u64) -> u64 {
        self.accesses += self.quantum;
        self.quantum = 0;
        self.wall = wall;
        self.now(0)
    }

    /// Begins a quantum at `now` that ends with the slice, or by time `until`; returns its length.
    fn begin_quantum(&mut self, now: u64, until: u64) -> u64 {
        self.quantum = match self.is_virtual {
            true => {
                let slice = self.slice_start + self.slice_length - now;
                slice.min(LONGEST_QUANTUM).min(until - now)
            }
            false => WALL_QUANTUM,
        };
        self.quantum_end = now + self.quantum;
        self.quantum
    }

    /// Begins the slice at the multiple of `length` that contains `now`.
    fn begin_slice(&mut self, now: u64, length: u64) {
        self.slice_length = length;
        self.slice_start = now / length * length;
    }

    /// Whether the slice has ended by `now`.
    fn is_over(&self, now: u64) -> bool {
        now >= self.slice_start + self.slice_length
    }
}

impl ThreadTracer {
    /// The present time of the profile's clock.
    #[inline(always)]
    #[must_use]
    pub fn time(&self) -> u64 {
        self.clock.now(self.fast.remaining)
    }

    /// Takes back the time of a run-time library's access that was just counted. Not with an access trace, whose
    /// records have one number for work and time.
    #[inline(always)]
    pub(super) fn stop_clock<const RUNTIME: bool>(&mut self) {
        if RUNTIME && self.stream.is_none() {
            self.clock.take_back();
        }
    }

    /// Accesses in bursts so far; all accesses where time is not sampled.
    #[inline(always)]
    pub(super) fn seen(&self) -> u64 {
        let paused = self.sampler.paused();
        let spent = self.clock.spent(self.fast.remaining);
        self.sampler.seen + if paused { 0 } else { spent }
    }

    /// Moves the virtual clock forward without work.
    pub(super) fn advance(&mut self, now: u64) {
        self.sampler.seen = self.seen();
        self.clock.advance(now, self.fast.remaining);
        self.go_on(now);
    }

    /// Ends the quantum, and the slice if its time has come.
    #[cold]
    #[inline(never)]
    pub(super) fn end_quantum(&mut self) {
        self.sampler.seen = self.seen();
        self.shorten(self.fast.remaining);
        self.engine.mark_written();
        let now = self.clock.end_quantum(self.engine.wall());
        if !self.engine.config.virtual_clock
            && let Some(stream) = &mut self.stream
        {
            stream.move_to(now);
        }
        self.go_on(now);
    }

    /// Ends the quantum this many accesses earlier.
    fn shorten(&mut self, accesses: u64) {
        self.fast.remaining = self.fast.remaining.wrapping_sub(accesses);
        self.clock.shorten(accesses);
    }

    /// Leaves `rest` accesses of the quantum until [`ThreadTracer::give_back`]: code that counts accesses which fit
    /// into the quantum then calls the tracer.
    pub fn hold_back(&mut self, rest: u64) {
        if self.sampler.held == 0 && self.fast.remaining > rest {
            self.sampler.held = self.fast.remaining - rest;
            self.shorten(self.sampler.held);
        }
    }

    /// Gives back the accesses of the quantum that are held.
    pub fn give_back(&mut self) {
        let held = std::mem::take(&mut self.sampler.held);
        if held != 0 {
            self.shorten(held.wrapping_neg());
        }
    }

    /// Ends the quantum of a thread that has made more accesses than remained.
    pub fn end_overrun(&mut self) {
        if self.fast.remaining as i64 <= 0 {
            self.end_quantum();
        }
    }

    /// Begins the next quantum, in the next slice if its time has come.
    fn go_on(&mut self, now: u64) {
        if self.clock.is_over(now) {
            self.change_slice(now);
        } else {
            self.begin_quantum(now);
        }
    }

    /// Begins a quantum: the accesses until the clock is checked again.
    fn begin_quantum(&mut self, now: u64) {
        let until = match self.engine.bursts {
            Some(bursts) => {
                let watch = bursts.at(now);
                self.follow(watch);
                watch.until
            }
            None => u64::MAX,
        };
        // Accesses are sampled at the ends of quanta, in bursts only.
        let until = match self.sampler.paused() {
            true => until,
            false => until.min(now.saturating_add(self.sites.due_in(self.clock.accesses))),
        };
        self.sampler.held = 0;
        self.fast.remaining = self.clock.begin_quantum(now, until);
    }

    /// Turns sampling on or off as the schedule says.
    fn follow(&mut self, watch: Watch) {
        // Each burst is flushed by itself: errors are estimated from how bursts differ.
        if !self.sampler.paused() && (!watch.sampling || watch.burst != self.sampler.burst) {
            self.flush_comm();
        }
        self.set_sampling(watch.sampling);
        self.sampler.burst = watch.burst;
    }

    /// Begins the slice that contains `now`.
    pub(super) fn begin_slice(&mut self, now: u64) {
        self.clock
            .begin_slice(now, self.engine.slices.slice_length(now));
        self.begin_quantum(now);
    }

    /// Writes the counts of the slice that has ended.
    fn change_slice(&mut self, now: u64) {
        if self.engine.bursts.is_none() {
            self.flush_comm();
        }
        // A counter holds 2^31 - 1 accesses to a page.
        let crowded = self.clock.accesses - self.journal.reported > LONGEST_QUANTUM / 2;
        let over = !self.engine.budget.keeps(Detail::Pages);
        if over && self.pages.counters.counts() {
            self.flush_pages();
            self.discard_pages();
        }
        if self.pages.is_over(now) || crowded {
            self.flush_pages();
            self.flush_sites();
            self.pages.begin_span(now, self.engine.slices.span_length());
        }
        self.begin_slice(now);
        self.write_out();
        if self.stream.as_ref().is_some_and(|stream| stream.closed()) {
            self.stream = None;
            self.choose_path();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_time_passes_with_accesses() {
        let mut clock = Clock::new(true, 100, 0);
        clock.begin_slice(100, 64);
        assert_eq!(clock.slice_start, 64);
        assert_eq!(clock.begin_quantum(100, u64::MAX), 28);
        assert_eq!(
            (clock.now(28), clock.now(20), clock.spent(20)),
            (100, 108, 8)
        );
        assert_eq!(clock.end_quantum(7), 128);
        assert!(clock.is_over(128) && !clock.is_over(127));
        assert_eq!(clock.accesses, 28);
    }

    #[test]
    fn a_quantum_ends_with_its_burst() {
        let mut clock = Clock::new(true, 0, 0);
        clock.begin_slice(0, 1000);
        assert_eq!(clock.begin_quantum(10, 250), 240);
        clock.begin_slice(0, u64::MAX / 2);
        assert_eq!(clock.begin_quantum(0, u64::MAX), LONGEST_QUANTUM);
    }

    #[test]
    fn moving_forward_is_no_work() {
        let mut clock = Clock::new(true, 0, 0);
        clock.begin_slice(0, 1000);
        let quantum = clock.begin_quantum(0, u64::MAX);
        clock.advance(500, quantum - 10);
        assert_eq!(clock.accesses, 10);
        assert_eq!(clock.now(quantum - 10), 500);
        assert_eq!(clock.spent(quantum - 10), 0);
    }

    #[test]
    fn more_accesses_than_remained_are_counted_exactly() {
        let mut clock = Clock::new(true, 0, 0);
        clock.begin_slice(0, 1000);
        let quantum = clock.begin_quantum(0, u64::MAX);
        clock.shorten(100);
        assert_eq!(
            (clock.now(quantum - 100), clock.spent(quantum - 100)),
            (0, 0)
        );
        let overrun = 7_u64.wrapping_neg();
        assert_eq!((clock.now(overrun), clock.spent(overrun)), (907, 907));
        clock.shorten(overrun);
        assert_eq!((clock.end_quantum(0), clock.accesses), (907, 907));
    }

    #[test]
    fn time_of_run_time_libraries_does_not_pass() {
        let mut clock = Clock::new(true, 0, 0);
        clock.begin_slice(0, 1000);
        let quantum = clock.begin_quantum(0, u64::MAX);
        clock.take_back();
        assert_eq!(clock.now(quantum - 1), 0);
        assert_eq!(clock.spent(quantum - 1), 1);
    }

    #[test]
    fn wall_time_stands_still_during_a_quantum() {
        let mut clock = Clock::new(false, 0, 40);
        clock.begin_slice(40, 100);
        assert_eq!(clock.begin_quantum(40, 41), WALL_QUANTUM);
        assert_eq!((clock.now(WALL_QUANTUM), clock.now(1)), (40, 40));
        assert_eq!(clock.end_quantum(99), 99);
    }
}
