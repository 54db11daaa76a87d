//! Lines used for synchronisation: clocks, and what is loaded from them.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU64, compiler_fence};

use super::super::{LINE, ThreadTracer};
use super::received::Load;
use crate::line;
use crate::shadow::prefetch;
use crate::tables::CLOCK;

impl ThreadTracer {
    /// Prefetches what is known of a line used for synchronisation beyond its word: four tables, which a thread that
    /// waits for one after the other would wait for four times.
    #[inline(always)]
    pub(super) fn prefetch_synchronising(&self, address: u64) {
        prefetch(self.engine.clock(address));
        prefetch(self.engine.tables.written.word(address));
        self.engine.tables.readers.prefetch(address, self.reader);
    }

    /// [`ThreadTracer::announce`].
    #[inline(always)]
    pub fn light_announce(&mut self, address: u64) -> bool {
        let light = !self.batch.pending;
        if light {
            self.begin_store();
            self.interrupt(address);
        }
        light
    }

    /// [`ThreadTracer::loads_its_own`] for the program's load of one word. From then on loads from the line are fast,
    /// if the thread has all its clocks: until another thread announces a store, or leaves a later clock.
    #[inline(always)]
    pub(super) fn light_own(&mut self, word: u64, address: u64) -> bool {
        if !self.wrote_last(word) {
            return false;
        }
        self.store_recorded();
        let taken = self.engine.clock(address).load(Relaxed) <= self.time();
        if !taken || !self.engine.underway.is_soon_empty() {
            return false;
        }
        if self.bit != 0 && word & self.bit == 0 && self.has_clocks(address) {
            let entry = self.lines.word(address);
            let kept = entry.compare_exchange(word, word | self.bit, SeqCst, Relaxed);
            // Whoever has announced a store before this saw no bit.
            if kept.is_ok() && !(self.engine.underway.is_empty() && self.has_clocks(address)) {
                entry.fetch_and(!self.bit, Relaxed);
            }
        }
        true
    }

    /// Whether no clock at the line of `address` is later than this thread's.
    #[inline(always)]
    fn has_clocks(&self, address: u64) -> bool {
        let (line, now) = (address & !(LINE - 1), self.time());
        let mut at = 0;
        while at < LINE {
            if self.engine.clock(line + at).load(Relaxed) > now {
                return false;
            }
            // One after the other: vector registers belong to the program.
            compiler_fence(SeqCst);
            at += CLOCK;
        }
        true
    }

    /// The clock of a word, if the thread can take it by [`ThreadTracer::light_acquired`]: only what the thread itself
    /// has announced changes before that.
    #[inline(always)]
    pub(super) fn light_clock(&mut self, clock: &AtomicU64) -> Option<u64> {
        self.store_recorded();
        if self.contention.is_open() || !self.engine.underway.is_soon_empty() {
            return None;
        }
        let clock = clock.load(Relaxed);
        (clock <= self.time() || self.may_move_to(clock)).then_some(clock)
    }

    /// Whether the clock can move forward within the quantum and the slice: [`ThreadTracer::light_move`].
    #[inline(always)]
    fn may_move_to(&self, now: u64) -> bool {
        let accesses = self.clock.accesses + self.clock.spent(self.fast.remaining);
        self.stream.is_none()
            && self.engine.bursts.is_none()
            && self.sampler.held == 0
            && self.clock.is_within_slice(now, self.fast.remaining)
            && self.contention.may_move(accesses)
    }

    /// Moves the clock forward as [`ThreadTracer::advance`] does, but for the end of the quantum: after as many
    /// accesses as before.
    #[inline(always)]
    pub(super) fn light_move(&mut self, now: u64) {
        self.sampler.seen = self.seen();
        self.clock.advance(now, self.fast.remaining);
    }

    /// Takes the clock that [`ThreadTracer::light_clock`] has found at the word at `address`, as
    /// [`ThreadTracer::acquire_by`] does.
    #[inline(always)]
    pub(super) fn light_acquired(&mut self, address: u64, clock: u64, begins: bool) {
        if clock > self.time() {
            self.light_move(clock);
        }
        if begins {
            self.contention.acquired(address, self.time());
        }
    }

    /// [`ThreadTracer::release_by`] without an access trace.
    #[inline(always)]
    pub(super) fn light_release(&mut self, address: u64, ends: bool) {
        if ends {
            self.contention.released(address, self.time());
        }
        if self.engine.config.virtual_clock {
            let (word, now) = (self.engine.clock(address), self.time());
            if word.load(Relaxed) < now {
                word.fetch_max(now, Relaxed);
                self.interrupt(address);
            }
        }
        self.store_recorded();
    }

    /// An atomic load and store, after [`ThreadTracer::announce`]: [`ThreadTracer::hand_over`] and
    /// [`ThreadTracer::synchronise`], of a line that is already used for synchronisation.
    #[inline(always)]
    pub fn light_atomic<const RUNTIME: bool>(&mut self, address: u64, size: u32) -> bool {
        self.prefetch_synchronising(address);
        let word = self.lines.word(address).load(Relaxed);
        let (light, paused) = self.light_stores::<false>(2, word, address, size);
        let sampled = !paused && self.contention.is_atomic_due();
        if !light || word & line::SYNC == 0 || sampled {
            return false;
        }
        // Other threads' values are events where the program reads them.
        let load = match RUNTIME || paused {
            true => Load::Quiet,
            false => match self.light_event(word, address, size) {
                Some(load) => load,
                None => return false,
            },
        };
        let mut clock = 0;
        if self.engine.config.virtual_clock {
            let left = self.engine.clock(address);
            if self.clock.underway {
                left.fetch_max(self.time(), Relaxed);
            }
            match self.light_clock(left) {
                Some(found) => clock = found,
                None => return false,
            }
        }
        if RUNTIME {
            self.clock.lock = address;
        }
        self.light_count_unless::<false, RUNTIME>(paused, address, size);
        self.light_acquired(address, clock, true);
        if let Load::Event { overlaps } = load {
            self.light_received(word, address, size, overlaps);
        }
        self.light_count_unless::<true, RUNTIME>(paused, address, size);
        self.light_release(address, true);
        if !paused {
            self.contention.pass_atomic();
        }
        if !RUNTIME && !paused {
            self.light_rewrite(word, address, size);
        }
        true
    }

    /// A load and a store of one word by the program, not atomically, of a line used for synchronisation, with this
    /// `word`, which the thread has written last.
    #[inline(always)]
    pub(super) fn light_own_update(&mut self, word: u64, address: u64, size: u32) -> bool {
        let (light, paused) = self.light_stores::<false>(2, word, address, size);
        if !light || paused || self.engine.config.consecutive || !self.light_own(word, address) {
            return false;
        }
        self.light_count::<false, false>(address, size);
        let word = self.lines.word(address).load(Relaxed);
        self.light_own_stored(word, address, size);
        true
    }

    /// A store of one word by the program to a line used for synchronisation, with this `word`.
    #[inline(always)]
    pub(super) fn light_own_store(&mut self, word: u64, address: u64, size: u32) -> bool {
        let (light, paused) = self.light_stores::<false>(1, word, address, size);
        let light = light && !paused && !self.engine.config.consecutive;
        if light {
            self.light_own_stored(word, address, size);
        }
        light
    }

    #[inline(always)]
    fn light_own_stored(&mut self, word: u64, address: u64, size: u32) {
        self.light_count::<true, false>(address, size);
        self.light_release(address, true);
        self.light_rewrite(word, address, size);
    }

    /// Applies the program's store to a line used for synchronisation, with this `word`, as
    /// [`ThreadTracer::write_line`] does: its readers are forgotten.
    #[inline(always)]
    fn light_rewrite(&mut self, word: u64, address: u64, size: u32) {
        self.keep_store(address);
        if word & line::EXTENDED != 0 {
            self.engine.tables.readers.reset(address);
        }
        let tracked = word & line::TRACKED;
        let owned = self.synchronising(word);
        if word != owned {
            self.lines.word(address).store(owned, Relaxed);
        }
        if tracked != 0 {
            self.light_track(address, size, word != owned);
        }
    }
}
