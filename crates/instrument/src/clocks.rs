//! The calling thread's clock at objects that threads synchronise by.

use crate::current;

/// Leaves the calling thread's clock at `object`.
pub(crate) fn release(object: u64) {
    current::with(|tracer| tracer.release(object));
}

/// Takes the clock of `object`.
pub(crate) fn acquire(object: u64) {
    current::with(|tracer| tracer.acquire(object));
}
