//! A lock that makes at most two system calls, uses no thread-local state, and can be held across a fork.
//!
//! Translation allocates much, and an atomic instruction takes as long as all else that allocating takes. So locks use
//! none while the process has one thread.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32};

use crate::sys;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and a thread sleeps on it.
const CONTENDED: u32 = 2;

/// Whether the process has had more than one thread, or shares its memory with another process. Tests have threads.
static SHARED: AtomicBool = AtomicBool::new(cfg!(test));

/// The process will have another thread: called by the only one before that.
pub fn share() {
    SHARED.store(true, Relaxed);
}

/// A value and the lock that protects it. Not recursive; a signal handler takes it only if its thread cannot hold it.
pub struct Lock<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: only the holder accesses the value.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// An unlocked lock.
    pub const fn new(value: T) -> Self {
        Self {
            word: AtomicU32::new(FREE),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits until the lock is free and takes it.
    pub fn lock(&self) -> Guard<'_, T> {
        if !self.take(SHARED.load(Relaxed)) {
            self.wait();
        }
        Guard { lock: self }
    }

    /// Takes the lock if it is free. `shared`: other threads may do so, too.
    fn take(&self, shared: bool) -> bool {
        if shared {
            let taken = self.word.compare_exchange(FREE, HELD, Acquire, Relaxed);
            return taken.is_ok();
        }
        // A signal handler that takes it in between has given it back when the thread goes on.
        let free = self.word.load(Acquire) == FREE;
        if free {
            self.word.store(HELD, Relaxed);
        }
        free
    }

    #[cold]
    fn wait(&self) {
        while self.word.swap(CONTENDED, Acquire) != FREE {
            let word = self.word.as_ptr() as u64;
            let wait = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as u64;
            // SAFETY: waits on a word that lives as long as the lock.
            unsafe { sys::call(libc::SYS_futex, [word, wait, u64::from(CONTENDED), 0, 0, 0]) };
        }
    }

    fn release(&self, shared: bool) {
        if !shared {
            // Nobody waits.
            return self.word.store(FREE, Release);
        }
        if self.word.swap(FREE, Release) == CONTENDED {
            let wake = (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as u64;
            // SAFETY: wakes a waiter, if there is one.
            unsafe {
                sys::call(
                    libc::SYS_futex,
                    [self.word.as_ptr() as u64, wake, 1, 0, 0, 0],
                )
            };
        }
    }
}

/// Access to the value of a [`Lock`].
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard is the only one.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard is the only one.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.lock.release(SHARED.load(Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::Lock;

    #[test]
    fn one_at_a_time() {
        let sum = Lock::new(0_u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        *sum.lock() += 1;
                    }
                });
            }
        });
        assert_eq!(*sum.lock(), 40_000);
    }

    #[test]
    fn a_lock_taken_by_the_only_thread_is_held_when_there_are_others() {
        let lock = Lock::new(());
        for (before, after) in [(false, false), (false, true), (true, true)] {
            assert!(lock.take(before));
            assert!(!lock.take(before) && !lock.take(after));
            lock.release(after);
        }
        assert!(lock.take(true));
    }
}
