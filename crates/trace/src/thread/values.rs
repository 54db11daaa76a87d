//! Values that run-time libraries hand from thread to thread by plain loads and stores.
//!
//! Whether its last task is done, libgomp's `taskwait` sees in a pointer that it loads like any other. What a thread finds in such memory
//! was not there before another wrote it: a plain store by run-time code leaves the clock at its word, a plain load
//! takes it. Unlike that of a word used for synchronisation, the clock is the last store's, not the latest: memory that
//! others use again has no past.
//!
//! Not all of them where libomp is: its threads look at words that others write when they arrive at the next barrier already, whose time
//! those who leave the last one late must not take. But a task that depends on one that has ended finds a pointer to it gone, without
//! taking the lock beside that pointer. So there the words are followed that hold pointers and were written near the lock that the
//! writer took or left last.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU64};

use super::ThreadTracer;
use crate::line;
use crate::memory::Detail;

/// Which values are followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Values {
    /// None.
    None,
    /// Those of the size of a pointer that were written near a lock.
    Guarded,
    /// All but those on stacks.
    All,
}

static FOLLOWED: AtomicU8 = AtomicU8::new(Values::None as u8);
/// Where the loader's variables begin and end. It counts the functions that it binds there, for whoever calls one first.
static LOADER: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// What a stack takes at most, of those that are looked at.
const STACK: u64 = 8 << 20;
/// How far a lock lies from what it guards.
const NEAR: u64 = 128;
const POINTER: u32 = 8;

/// Tells where the loader lies in memory, whose variables carry no clocks.
pub fn set_loader_range(start: u64, end: u64) {
    LOADER[0].store(start, Relaxed);
    LOADER[1].store(end, Relaxed);
}

/// From now on these plain accesses of run-time code carry clocks.
pub fn follow_values(values: Values) {
    FOLLOWED.store(values as u8, Relaxed);
}

impl ThreadTracer {
    /// A plain access to `address` by the code of a run-time library.
    pub(super) fn follow_value<const WRITE: bool>(&mut self, address: u64, size: u32) {
        let followed = FOLLOWED.load(Relaxed);
        let guarded = followed == Values::Guarded as u8;
        if followed == Values::None as u8 || guarded && size != POINTER {
            return;
        }
        let word = self.lines.word(address).load(Relaxed);
        let elsewhere = word & line::SYNC != 0 || line::is_cross_process(word);
        let loader = LOADER[0].load(Relaxed)..LOADER[1].load(Relaxed);
        // Below a thread's first store lies its stack, which may have been another's.
        let own = self.first_store().wrapping_sub(address) < STACK;
        // An access trace has no record for this; with fewer clocks than words, an earlier one might replace another word's.
        if !self.engine.config.virtual_clock
            || own
            || elsewhere
            || self.stream.is_some()
            || !self.engine.budget.keeps(Detail::Clocks)
            || loader.contains(&address)
        {
            return;
        }
        let clock = self.engine.clocks.word(address);
        if guarded && clock.load(Relaxed) == 0 && (!WRITE || address.abs_diff(self.lock) > NEAR) {
            return;
        }
        if WRITE {
            clock.store(self.time(), Relaxed);
            self.store_recorded();
        } else {
            self.store_recorded();
            self.engine.underway.wait();
            let clock = clock.load(Relaxed);
            if clock > self.time() {
                self.advance(clock);
            }
        }
    }
}
