//! Stores that may be done already, but have not been told.
//!
//! An emulator tells of an access when it was done. Another thread that finds the value meanwhile, but not yet the clock that belongs to it,
//! would go on too early. So a thread says beforehand that it is about to store where others may look, and whoever takes a clock
//! waits for those who were about to.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};
use std::time::Duration;

use crate::readers::NUMBERS;

/// Looks at a thread that is about to store before the waiting one leaves it the processor, and before it sleeps.
const SPINS: u32 = 64;
const YIELDS: u32 = 128;
/// Looks at it in all, the last ones this long apart. Then its instruction has failed, and nobody waits for it any more.
const LOOKS: u32 = YIELDS + 500;
const PAUSE: Duration = Duration::from_micros(200);

/// What each thread is about to do, by reader number.
pub(crate) struct Underway {
    /// 0, or the number of the store that the thread is about to do.
    seats: Box<[AtomicU64]>,
    /// Seats from here on have never been taken.
    used: AtomicU32,
}

impl Underway {
    pub(crate) fn new() -> Self {
        Self {
            seats: (0..NUMBERS).map(|_| AtomicU64::new(0)).collect(),
            used: AtomicU32::new(0),
        }
    }

    /// Thread `reader` is about to do its store number `store`, which is not 0.
    pub(crate) fn begin(&self, reader: u32, store: u64) {
        if let Some(seat) = self.seats.get(reader as usize) {
            if self.used.load(Relaxed) <= reader {
                self.used.fetch_max(reader + 1, Relaxed);
            }
            seat.store(store, Relaxed);
            fence(Release);
        }
    }

    /// The clock of that store can be found.
    pub(crate) fn end(&self, reader: u32) {
        if let Some(seat) = self.seats.get(reader as usize) {
            seat.store(0, Release);
        }
    }

    /// Waits until what was underway has been told; a tenth of a second at most for each thread, longer where the host is busy.
    #[inline(always)]
    pub(crate) fn wait(&self) {
        let used = self.used.load(Relaxed) as usize;
        for seat in self.seats.iter().take(used) {
            let store = seat.load(Acquire);
            if store != 0 {
                Self::wait_for(seat, store, LOOKS);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn wait_for(seat: &AtomicU64, store: u64, looks: u32) {
        for look in 0..looks {
            match look {
                0..SPINS => std::hint::spin_loop(),
                SPINS..YIELDS => std::thread::yield_now(),
                _ => std::thread::sleep(PAUSE),
            }
            if seat.load(Acquire) != store {
                return;
            }
        }
        let _ = seat.compare_exchange(store, 0, Relaxed, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_take_clocks_wait_for_stores_underway_and_for_no_later_ones() {
        let underway = Underway::new();
        let clock = AtomicU64::new(0);
        underway.wait();
        underway.begin(70, 1);
        std::thread::scope(|scope| {
            // For the first store, which may be done by then; without a limit, since a busy host may keep this thread from storing
            // for longer than any.
            let waiting = scope.spawn(|| {
                Underway::wait_for(&underway.seats[70], 1, u32::MAX);
                clock.load(Relaxed)
            });
            std::thread::sleep(PAUSE);
            clock.store(5, Relaxed);
            underway.end(70);
            // The next one has nothing to do with who waits.
            underway.begin(70, 2);
            assert_eq!(waiting.join().unwrap(), 5);
        });
    }

    #[test]
    fn nobody_waits_twice_for_an_instruction_that_failed() {
        let underway = Underway::new();
        underway.begin(0, 1);
        underway.wait();
        assert_eq!(underway.seats[0].load(Relaxed), 0);
    }

    #[test]
    fn threads_without_a_seat_are_not_waited_for() {
        let underway = Underway::new();
        underway.begin(NUMBERS as u32, 1);
        underway.wait();
        underway.end(NUMBERS as u32);
        assert_eq!(underway.used.load(Relaxed), 0);
    }
}
