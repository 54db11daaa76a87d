//! Locks that a signal handler and a fork may come upon.
//!
//! A handler that interrupts who holds one is told so, where a mutex would wait for itself. A child of a fork, in which nobody else
//! would ever let go of one, makes them anew. To hold them during the fork would not do: the C library then takes locks of its own, and
//! the handler may have interrupted who holds one of those.

use std::cell::UnsafeCell;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Tries between two at which the processor is left to others.
const TRIES: u32 = 64;

/// A value that one thread uses at a time, for a short while.
pub(crate) struct Lock<T> {
    /// The thread that uses it, 0 for none.
    owner: AtomicUsize,
    value: UnsafeCell<T>,
}

// SAFETY: only the owner uses the value.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The calling thread; the same in a child.
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

    /// Lets `work` use the value; `None`, and nothing done, if the calling thread is at it already.
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

    /// In a forked child: whether another thread of the parent was at it, and may have left it half changed. It can be used again, once
    /// it was given a `new` value.
    ///
    /// # Safety
    /// The process has one thread.
    pub(crate) unsafe fn renew(&self, new: impl FnOnce() -> T) -> bool {
        let owner = self.owner.load(Relaxed);
        let lost = owner != 0 && owner != me();
        if lost {
            // SAFETY: nobody uses the value; what is left of it is not looked at.
            unsafe { self.value.get().write(new()) };
            self.owner.store(0, Relaxed);
        }
        lost
    }

    /// In a forked child: begins with a `new` value, but where the calling thread is at the old one.
    ///
    /// # Safety
    /// The process has one thread.
    pub(crate) unsafe fn reset(&self, new: fn() -> T) {
        // SAFETY: as the caller promises.
        if !unsafe { self.renew(new) } {
            self.with(|value| *value = new());
        }
    }
}
