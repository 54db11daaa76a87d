//! Stores that may be done but are not recorded yet.
//!
//! An emulator reports an access after making it. Another thread that sees the value before the clock that belongs to
//! it would continue too early. So a thread announces a store that others may see, and a thread that takes a clock
//! waits for all announced stores.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

use crate::readers::NUMBERS;

/// Checks of an announced store before the waiting thread yields, and before it sleeps.
const SPINS: u32 = 64;
const YIELDS: u32 = 128;
/// Checks in total; the last ones are `PAUSE` apart. After them the store is taken to have failed and is not waited
/// for again.
const LOOKS: u32 = YIELDS + 500;
const PAUSE: Duration = Duration::from_micros(200);

/// The announced stores, by reader number.
pub(crate) struct Underway {
    /// 0, or the number of the thread's announced store.
    seats: Box<[AtomicU64]>,
    /// Seats from here on were never used.
    used: AtomicU32,
}

impl Underway {
    pub(crate) fn new() -> Self {
        Self {
            seats: (0..NUMBERS).map(|_| AtomicU64::new(0)).collect(),
            used: AtomicU32::new(0),
        }
    }

    /// Announces store number `store`, not 0, of thread `reader`.
    #[inline(always)]
    pub(crate) fn begin(&self, reader: u32, store: u64) {
        if let Some(seat) = self.seats.get(reader as usize) {
            if self.used.load(Relaxed) <= reader {
                self.used.fetch_max(reader + 1, Relaxed);
            }
            // Before this thread looks whether others rely on the clocks of a line.
            seat.swap(store, SeqCst);
        }
    }

    /// Ends the announcement: the store's clock is in place.
    #[inline(always)]
    pub(crate) fn end(&self, reader: u32) {
        if let Some(seat) = self.seats.get(reader as usize) {
            seat.store(0, Release);
        }
    }

    /// Whether no store is announced.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        let used = self.used.load(Relaxed) as usize;
        self.seats
            .iter()
            .take(used)
            .all(|seat| seat.load(Acquire) == 0)
    }

    /// [`Underway::is_empty`], perhaps after a short while.
    #[inline(always)]
    pub(crate) fn is_soon_empty(&self) -> bool {
        for _ in 0..SPINS {
            if self.is_empty() {
                return true;
            }
            std::hint::spin_loop();
        }
        false
    }

    /// Waits until all announced stores are recorded; at most a tenth of a second per thread, longer if the host is
    /// busy.
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
    fn taking_a_clock_waits_for_announced_stores_but_not_for_later_ones() {
        let underway = Underway::new();
        let clock = AtomicU64::new(0);
        underway.wait();
        underway.begin(70, 1);
        std::thread::scope(|scope| {
            // Waits for the first store, which may be done by then. No limit: a busy host may delay the storing thread
            // by any time.
            let waiting = scope.spawn(|| {
                Underway::wait_for(&underway.seats[70], 1, u32::MAX);
                clock.load(Relaxed)
            });
            std::thread::sleep(PAUSE);
            clock.store(5, Relaxed);
            underway.end(70);
            // A later store is not waited for.
            underway.begin(70, 2);
            assert_eq!(waiting.join().unwrap(), 5);
        });
    }

    #[test]
    fn a_store_that_failed_is_waited_for_only_once() {
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
