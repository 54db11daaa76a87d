//! Clocks at synchronisation words: how threads that wait for each other join their times.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::ThreadTracer;
use crate::line;

/// Stands for a clock without a virtual time.
const UNKNOWN: u64 = 1;

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
        self.begin_store();
    }

    /// [`ThreadTracer::announce`] of a store to this address.
    pub fn announce_at(&mut self, address: u64) {
        self.announce();
        self.interrupt(address);
    }

    /// Makes loads by the last writer of the line at `address` look at its clocks again, if another thread is that.
    #[inline(always)]
    pub(super) fn interrupt(&self, address: u64) {
        let entry = self.lines.word(address);
        let word = entry.load(Relaxed);
        let others = word & line::ALL_READERS & !self.bit != 0;
        if others && word & line::SYNC != 0 && !line::is_cross_process(word) {
            entry.fetch_and(!line::ALL_READERS | self.bit, Relaxed);
        }
    }

    /// Whether this thread has written the line with this `word` last, and no access trace needs its clocks.
    #[inline(always)]
    pub(super) fn wrote_last(&self, word: u64) -> bool {
        line::writer(word) == line::writer(self.fast.owned)
            && self.stream.is_none()
            && self.engine.config.virtual_clock
    }

    /// Whether a load by the program from the word at `address`, on a line with this `word`, synchronises with nobody:
    /// this thread has written the line last, and nobody has left it a later clock.
    pub(super) fn loads_its_own(&mut self, word: u64, address: u64) -> bool {
        if !self.wrote_last(word) || self.contention.loads_atomically {
            return false;
        }
        self.store_recorded();
        self.engine.underway.wait();
        self.clock(address).load(Relaxed) <= self.time()
    }

    /// [`ThreadTracer::announce`] with nothing pending.
    #[inline(always)]
    pub(super) fn begin_store(&mut self) {
        if self.engine.config.virtual_clock {
            self.clock.announced += 1;
            self.clock.underway = true;
            self.engine
                .underway
                .begin(self.reader, self.clock.announced);
        }
    }

    /// Ends the announcement: the store was recorded.
    #[inline(always)]
    pub fn store_recorded(&mut self) {
        if std::mem::take(&mut self.clock.underway) {
            self.engine.underway.end(self.reader);
        }
    }

    /// Leaves this thread's clock at a word that it has loaded and stored, before taking the clock for the load:
    /// whoever sees the store finds the clock.
    pub fn hand_over(&mut self, address: u64) {
        if self.clock.underway {
            self.mark_sync(address);
            let now = self.time();
            self.clock(address).fetch_max(now, Relaxed);
            self.interrupt(address);
            self.store_recorded();
        }
    }

    /// Takes the clock of the synchronisation word at `address`, if it is later.
    pub fn acquire(&mut self, address: u64) {
        self.acquire_by::<false>(address);
    }

    /// [`ThreadTracer::acquire`] by the program, or by a run-time library.
    pub(crate) fn acquire_by<const RUNTIME: bool>(&mut self, address: u64) {
        // A thread that is itself waiting must not be waited for.
        self.store_recorded();
        let (now, mut clock) = (self.time(), UNKNOWN);
        if self.engine.config.virtual_clock {
            self.engine.underway.wait();
            clock = self.clock(address).load(Relaxed);
        }
        let begins = self.begins_interval::<RUNTIME>(address, clock);
        if begins {
            let word = if self.contention.loads_atomically {
                address
            } else {
                0
            };
            self.contention.close(word, now);
        }
        if self.engine.config.virtual_clock {
            if clock > 0
                && let Some(stream) = &mut self.stream
            {
                stream.acquire(address, clock.saturating_sub(now));
            }
            if clock > now {
                let joins = self.engine.is_ended(address);
                self.contention.moves_forward(clock - now, joins);
                self.advance(clock);
            }
        }
        if begins {
            self.contention.acquired(address, self.time());
        }
    }

    /// Whether a load of a synchronisation word with this clock begins an interval: the thread may have waited for
    /// another one. A word that nobody has released, or a field of a run-time library next to its lock, does not show
    /// that.
    #[inline(always)]
    pub(super) fn begins_interval<const RUNTIME: bool>(&self, address: u64, clock: u64) -> bool {
        let guards = !RUNTIME || address == self.clock.lock;
        self.contention.loads_atomically || clock > self.time() || clock > 0 && guards
    }

    /// Whether a store to a synchronisation word ends the interval, as [`ThreadTracer::begins_interval`].
    #[inline(always)]
    pub(super) fn ends_interval<const RUNTIME: bool>(&self, address: u64) -> bool {
        !RUNTIME || self.contention.within_atomic || address == self.clock.lock
    }

    /// Leaves this thread's clock at the synchronisation word at `address`, if it is later.
    pub fn release(&mut self, address: u64) {
        self.release_by::<false>(address);
    }

    /// [`ThreadTracer::release`] by the program, or by a run-time library.
    pub(crate) fn release_by<const RUNTIME: bool>(&mut self, address: u64) {
        if self.ends_interval::<RUNTIME>(address) {
            self.contention.close(address, self.time());
            self.contention.released(address, self.time());
        }
        if self.engine.config.virtual_clock {
            let word = self.clock(address);
            let now = self.time();
            if let Some(stream) = &mut self.stream {
                stream.release(address);
            }
            if word.load(Relaxed) < now {
                word.fetch_max(now, Relaxed);
                self.interrupt(address);
            }
        }
        self.store_recorded();
    }

    /// Leaves this thread's clock for who waits for the end of its process.
    pub(super) fn leave_process(&mut self) {
        if self.engine.config.virtual_clock
            && let Some(found) = &self.engine.table
        {
            let ended = found.table.ended(std::process::id());
            ended.fetch_max(self.time(), Relaxed);
        }
    }

    /// Takes the clock of a process whose end this thread has waited for, if it is later. One that was killed, or not
    /// recorded, has left none.
    pub fn process_ended(&mut self, pid: u32) {
        // A thread that is itself waiting must not be waited for.
        self.store_recorded();
        let ended = match &self.engine.table {
            Some(found) if self.engine.config.virtual_clock => found.table.ended(pid).load(Relaxed),
            _ => 0,
        };
        let now = self.time();
        if ended > now {
            self.contention.close(0, now);
            if let Some(stream) = &mut self.stream {
                stream.idle(ended - now);
            }
            self.contention.moves_forward(ended - now, true);
            self.advance(ended);
        }
    }

    /// The clock of the synchronisation word at `address`.
    pub(super) fn clock(&mut self, address: u64) -> &'static AtomicU64 {
        let cross_process = match line::is_cross_process(self.lines.word(address).load(Relaxed)) {
            true => self.cross_process_clock(address),
            false => None,
        };
        cross_process.unwrap_or_else(|| self.engine.clock(address))
    }
}
