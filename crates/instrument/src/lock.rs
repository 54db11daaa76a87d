//! Locks that stay safe across signal handlers and `fork`.
//!
//! A handler that interrupts the owner learns that the lock is held by its own thread, where a mutex would deadlock.
//! A forked child resets locks whose owner does not exist there. Holding them during the fork is no alternative: the C
//! library then takes locks of its own, and the handler may have interrupted their owner.

use std::cell::UnsafeCell;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Number of attempts between two yields of the processor.
const TRIES: u32 = 64;

/// A value used by one thread at a time, for a short while.
pub(crate) struct Lock<T> {
    /// The thread that uses it, 0 for none.
    owner: AtomicUsize,
    value: UnsafeCell<T>,
}

// SAFETY: only the owner uses the value.
unsafe impl<T: Send> Sync for Lock<T> {}

/// Identifies the calling thread; the same in a forked child.
fn me() -> usize {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::pthread_self() as usize }
}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self {
            owner: AtomicUsize::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Calls `work` with the value; `None`, without calling it, if the calling thread uses the value already.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        let me = me();
        let mut tries = 0u32;
        while let Err(owner) = self.owner.compare_exchange_weak(0, me, Acquire, Relaxed) {
            if owner == me {
                return None;
            }
            tries = tries.wrapping_add(1);
            if tries.is_multiple_of(TRIES) {
                // SAFETY: no arguments.
                unsafe { libc::sched_yield() };
            } else {
                std::hint::spin_loop();
            }
        }
        // SAFETY: the calling thread is the owner, and was not before.
        let result = work(unsafe { &mut *self.value.get() });
        self.owner.store(0, Release);
        Some(result)
    }

    /// In a forked child: returns whether another thread of the parent was using the value and may have left it
    /// inconsistent; then replaces it with a `new` one.
    ///
    /// # Safety
    /// The process has one thread.
    pub(crate) unsafe fn renew(&self, new: impl FnOnce() -> T) -> bool {
        let owner = self.owner.load(Relaxed);
        let lost = owner != 0 && owner != me();
        if lost {
            // SAFETY: nothing uses the value; what is left of it is not read.
            unsafe { self.value.get().write(new()) };
            self.owner.store(0, Relaxed);
        }
        lost
    }

    /// In a forked child: replaces the value with a `new` one, unless the calling thread is using it.
    ///
    /// # Safety
    /// The process has one thread.
    pub(crate) unsafe fn reset(&self, new: fn() -> T) {
        // SAFETY: as the caller guarantees.
        if !unsafe { self.renew(new) } {
            self.with(|value| *value = new());
        }
    }
}
