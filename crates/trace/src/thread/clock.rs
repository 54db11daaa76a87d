//! Time: clocks at synchronisation words, quanta, slices and bursts.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::{LONGEST_QUANTUM, ThreadTracer, WALL_QUANTUM};
use crate::line;
use crate::memory::Detail;
use crate::pages::PageCounters;
use numaloc_journal::bursts::Watch;

impl ThreadTracer {
    /// Marks the line at `address` as used for synchronisation.
    pub fn mark_sync(&mut self, address: u64) {
        if line::is_cross_process(self.lines.word(address).load(Relaxed)) {
            self.mark_cross_process_sync(address);
        }
        let entry = self.lines.word(address);
        let mut word = entry.load(Relaxed);
        while word & line::SYNC == 0 {
            // The reader bits are dropped: a thread that has read the present value is counted at most once more.
            let new = u64::from(line::writer(word)) | word & line::BYTES | line::SYNC;
            match entry.compare_exchange_weak(word, new, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
    }

    /// Announces a store that other threads may see before it is recorded. Threads that take a clock wait until this
    /// thread has left its own ([`ThreadTracer::hand_over`], [`ThreadTracer::release`]), has recorded the store
    /// ([`ThreadTracer::store_recorded`]), or takes a clock itself.
    pub fn announce(&mut self) {
        self.flush_pending();
        if self.engine.config.virtual_clock {
            self.announced += 1;
            self.underway = true;
            self.engine.underway.begin(self.reader, self.announced);
        }
    }

    /// Ends the announcement: the store was recorded.
    #[inline(always)]
    pub fn store_recorded(&mut self) {
        if std::mem::take(&mut self.underway) {
            self.engine.underway.end(self.reader);
        }
    }

    /// Leaves this thread's clock at a word that it has loaded and stored, before taking the clock for the load:
    /// whoever sees the store finds the clock.
    pub fn hand_over(&mut self, address: u64) {
        if self.underway {
            self.mark_sync(address);
            let now = self.time();
            self.clock(address).fetch_max(now, Relaxed);
            self.store_recorded();
        }
    }

    /// Takes the clock of the synchronisation word at `address`, if it is later.
    pub fn acquire(&mut self, address: u64) {
        // A thread that is itself waiting must not be waited for.
        self.store_recorded();
        if self.engine.config.virtual_clock {
            self.engine.underway.wait();
            let clock = self.clock(address).load(Relaxed);
            if clock > 0
                && let Some(stream) = &mut self.stream
            {
                stream.acquire(
                    address,
                    clock.saturating_sub(self.quantum_end - self.remaining),
                );
            }
            if clock > self.time() {
                self.advance(clock);
            }
        }
    }

    /// Leaves this thread's clock at the synchronisation word at `address`, if it is later.
    pub fn release(&mut self, address: u64) {
        if self.engine.config.virtual_clock {
            let word = self.clock(address);
            let now = self.time();
            if let Some(stream) = &mut self.stream {
                stream.release(address);
            }
            if word.load(Relaxed) < now {
                word.fetch_max(now, Relaxed);
            }
        }
        self.store_recorded();
    }

    /// The clock of the synchronisation word at `address`.
    pub(super) fn clock(&mut self, address: u64) -> &'static AtomicU64 {
        let cross_process = match line::is_cross_process(self.lines.word(address).load(Relaxed)) {
            true => self.cross_process_clock(address),
            false => None,
        };
        cross_process.unwrap_or_else(|| self.engine.clock(address))
    }

    /// The present time of the profile's clock.
    #[must_use]
    pub fn time(&self) -> u64 {
        if self.engine.config.virtual_clock {
            self.quantum_end - self.remaining
        } else {
            self.wall
        }
    }

    /// Takes back the time of a run-time library's access that was just counted. Not with an access trace, whose
    /// records have one number for work and time.
    #[inline(always)]
    pub(super) fn stop_clock<const RUNTIME: bool>(&mut self) {
        if RUNTIME && self.stream.is_none() {
            self.quantum_end -= 1;
        }
    }

    /// Accesses of this quantum so far.
    pub(super) fn spent(&self) -> u64 {
        self.quantum - self.remaining
    }

    /// Accesses in bursts so far; all accesses where time is not sampled.
    pub(super) fn seen(&self) -> u64 {
        self.seen + if self.paused() { 0 } else { self.spent() }
    }

    /// Moves the virtual clock forward without work.
    pub(super) fn advance(&mut self, clock: u64) {
        self.seen = self.seen();
        self.accesses += self.spent();
        self.quantum = self.remaining;
        self.quantum_end = clock + self.remaining;
        if clock >= self.slice_start + self.slice_length {
            self.change_slice(clock);
        } else {
            self.begin_quantum(clock);
        }
    }

    /// Ends the quantum, and the slice if its time has come.
    #[cold]
    #[inline(never)]
    pub(super) fn end_quantum(&mut self) {
        self.seen = self.seen();
        self.accesses += self.quantum;
        self.quantum = 0;
        self.wall = self.engine.wall();
        let now = self.time();
        if !self.engine.config.virtual_clock
            && let Some(stream) = &mut self.stream
        {
            stream.move_to(now);
        }
        if now >= self.slice_start + self.slice_length {
            self.change_slice(now);
        } else {
            self.begin_quantum(now);
        }
    }

    /// Begins a quantum: the accesses until the clock is checked again.
    pub(super) fn begin_quantum(&mut self, now: u64) {
        self.quantum = if self.engine.config.virtual_clock {
            (self.slice_start + self.slice_length - now).min(LONGEST_QUANTUM)
        } else {
            WALL_QUANTUM
        };
        if let Some(bursts) = self.engine.bursts {
            self.follow(bursts.at(now), now);
        }
        self.remaining = self.quantum;
        self.quantum_end = now + self.quantum;
    }

    /// Turns sampling on or off as the schedule says.
    pub(super) fn follow(&mut self, watch: Watch, now: u64) {
        // Each burst is flushed by itself: errors are estimated from how bursts differ.
        if !self.paused() && (!watch.sampling || watch.burst != self.burst) {
            self.flush_comm();
        }
        self.set_sampling(watch.sampling);
        self.burst = watch.burst;
        if self.engine.config.virtual_clock {
            self.quantum = self.quantum.min(watch.until - now);
        }
    }

    /// Begins the slice at the multiple of its length that contains `now`.
    pub(super) fn begin_slice(&mut self, now: u64) {
        self.slice_length = self.engine.slice_length(now);
        self.slice_start = now / self.slice_length * self.slice_length;
        self.begin_quantum(now);
    }

    /// Writes the counts of the slice that has ended.
    pub(super) fn change_slice(&mut self, now: u64) {
        if self.engine.bursts.is_none() {
            self.flush_comm();
        }
        // A counter holds 2^32 accesses to a page.
        let crowded = self.accesses - self.reported > LONGEST_QUANTUM / 2;
        let over = !self.engine.budget.keeps(Detail::Pages);
        if over && self.counters.counts() {
            self.flush_pages();
            self.counters = PageCounters::discarding(&self.engine.touched);
        }
        if now >= self.span_start + self.span_length || crowded {
            self.flush_pages();
            self.span_length = self.engine.span_length();
            self.span_start = now / self.span_length * self.span_length;
        }
        self.begin_slice(now);
        self.write_out();
        if self.stream.as_ref().is_some_and(|stream| stream.closed()) {
            self.stream = None;
            self.choose_path();
        }
    }
}
