//! A lock that makes at most two system calls, uses no thread-local state, and can be held across a fork.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::sys;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and a thread sleeps on it.
const CONTENDED: u32 = 2;

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
        if self
            .word
            .compare_exchange(FREE, HELD, Acquire, Relaxed)
            .is_err()
        {
            self.wait();
        }
        Guard { lock: self }
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

    fn release(&self) {
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
        self.lock.release();
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
}
