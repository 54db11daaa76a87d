//! Values that run-time libraries pass between threads by plain loads and stores.
//!
//! libgomp's `taskwait`, for example, learns from an ordinary pointer that the last task is done. A value in such
//! memory was written by the thread that passed it on: a plain store by run-time code leaves the clock at its word, a
//! plain load takes it. Unlike the clock of a synchronisation word, it is that of the last store, not the latest:
//! memory that is reused has no past.
//!
//! With libomp not all values are followed: its threads read words that others write when they already arrive at the
//! next barrier, and a thread that leaves the last barrier late must not take their time. But a task that depends on
//! one that has ended finds a pointer cleared without taking the lock next to it. So with libomp only words that hold
//! pointers are followed, if they were written near the lock that the writer last took or released.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU64};

use super::ThreadTracer;
use crate::line;
use crate::memory::Detail;

/// Which values carry clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Values {
    /// None.
    None,
    /// Values of a pointer's size that were written near a lock.
    Guarded,
    /// All values, except on stacks.
    All,
}

static FOLLOWED: AtomicU8 = AtomicU8::new(Values::None as u8);
/// Start and end of the loader's variables. Whichever thread calls a function first makes the loader count its binding
/// there.
static LOADER: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Assumed maximum size of a stack, in bytes.
const STACK: u64 = 8 << 20;
/// Maximum distance in bytes from a lock to what it guards.
const NEAR: u64 = 128;
const POINTER: u32 = 8;

/// Sets the address range of the loader, whose variables carry no clocks.
pub fn set_loader_range(start: u64, end: u64) {
    LOADER[0].store(start, Relaxed);
    LOADER[1].store(end, Relaxed);
}

/// Sets which plain accesses of run-time code carry clocks from now on.
pub fn follow_values(values: Values) {
    FOLLOWED.store(values as u8, Relaxed);
}

impl ThreadTracer {
    /// Passes the clock through a plain access to `address` by the code of a run-time library.
    pub(super) fn follow_value<const WRITE: bool>(&mut self, address: u64, size: u32) {
        let word = self.lines.word(address).load(Relaxed);
        if !self.carries_clock::<WRITE>(address, size, word) {
            return;
        }
        let clock = self.engine.tables.clocks.word(address);
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

    /// Whether a plain access of run-time code to `address`, on a line with this `word`, passes a clock.
    #[inline(always)]
    pub(super) fn carries_clock<const WRITE: bool>(
        &self,
        address: u64,
        size: u32,
        word: u64,
    ) -> bool {
        let followed = FOLLOWED.load(Relaxed);
        let guarded = followed == Values::Guarded as u8;
        if followed == Values::None as u8 || guarded && size != POINTER {
            return false;
        }
        let elsewhere = word & line::SYNC != 0 || line::is_cross_process(word);
        let loader = LOADER[0].load(Relaxed)..LOADER[1].load(Relaxed);
        // Below a thread's first store lies its stack, which may have been another thread's before.
        let own = self.first_store().wrapping_sub(address) < STACK;
        // An access trace has no record for this. With fewer clocks than words, an earlier clock could replace another
        // word's.
        if !self.engine.config.virtual_clock
            || own
            || elsewhere
            || self.stream.is_some()
            || !self.engine.budget.keeps(Detail::Clocks)
            || loader.contains(&address)
        {
            return false;
        }
        !guarded
            || self.engine.tables.clocks.word(address).load(Relaxed) != 0
            || WRITE && address.abs_diff(self.clock.lock) <= NEAR
    }
}
