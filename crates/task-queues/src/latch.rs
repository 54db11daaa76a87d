//! When is a finish scope done? Counting every task in one shared counter would make that counter the
//! hottest line of the machine, so workers count in *credits*.
//!
//! A task alive in the scope stands for one credit. The latch counts the credits handed out; a worker
//! draws [`BATCH`] of them at a time, spends one for each task it creates, gets one back for each
//! task it completes, and returns what it has left when it turns to something else or runs dry. The
//! latch reaches zero once, when no task and no worker holds a credit: the scope is done.

use crate::sync::atomic::{AtomicI64, Ordering};

/// Credits drawn at a time: one atomic operation for this many tasks.
pub const BATCH: i64 = if cfg!(loom) { 2 } else { 1024 };

/// The number of credits handed out.
#[derive(Debug)]
pub struct Latch(AtomicI64);

impl Latch {
    /// A latch with so many credits already handed out (at least one, or it can never fire).
    #[must_use]
    pub fn new(credits: i64) -> Self {
        Self(AtomicI64::new(credits))
    }

    /// Hands out more. The caller holds at least one, so the latch cannot fire meanwhile.
    pub fn draw(&self, credits: i64) {
        self.0.fetch_add(credits, Ordering::Relaxed);
    }

    /// Takes back; true exactly once, for whoever brings the last.
    #[must_use]
    pub fn give_back(&self, credits: i64) -> bool {
        self.0.fetch_sub(credits, Ordering::AcqRel) == credits
    }
}

/// What one worker holds of one latch.
#[derive(Debug, Default)]
pub struct Credits(i64);

impl Credits {
    /// Spends one on a new task, drawing from the latch when there is none.
    pub fn spend(&mut self, latch: &Latch) {
        if self.0 == 0 {
            latch.draw(BATCH);
            self.0 = BATCH;
        }
        self.0 -= 1;
    }

    /// Gets one back from a completed task; what piles up goes back, but never the last one.
    pub fn regain(&mut self, latch: &Latch) {
        self.0 += 1;
        if self.0 > 2 * BATCH {
            let fired = latch.give_back(BATCH);
            debug_assert!(!fired, "credits are still held");
            self.0 -= BATCH;
        }
    }

    /// Returns everything; true if that was the last of the latch.
    #[must_use]
    pub fn settle(&mut self, latch: &Latch) -> bool {
        let held = std::mem::take(&mut self.0);
        held > 0 && latch.give_back(held)
    }
}
