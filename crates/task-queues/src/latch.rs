//! Detects when a finish scope is complete. Counting every task in one shared counter would make it the most contended
//! cache line of the machine, so workers count in *credits*.
//!
//! Each live task of the scope stands for one credit. The latch counts the credits handed out; a worker draws [`BATCH`]
//! of them at a time, spends one for each task it creates, regains one for each task it completes, and returns the rest
//! when it switches to another scope or runs out of tasks. The latch reaches zero once, when no task and no worker
//! holds a credit: the scope is complete.

use crate::sync::atomic::{AtomicI64, Ordering};

/// Credits drawn at a time: one atomic operation for this many tasks.
pub const BATCH: i64 = if cfg!(loom) { 2 } else { 1024 };

/// The latch: counts the credits handed out.
#[derive(Debug)]
pub struct Latch(AtomicI64);

impl Latch {
    /// Creates a latch with this many credits already handed out (at least one, or it can never fire).
    #[must_use]
    pub fn new(credits: i64) -> Self {
        Self(AtomicI64::new(credits))
    }

    /// Hands out more credits. The caller holds at least one, so the latch cannot fire meanwhile.
    pub fn draw(&self, credits: i64) {
        self.0.fetch_add(credits, Ordering::Relaxed);
    }

    /// Takes credits back; true exactly once, for the call that returns the last.
    #[must_use]
    pub fn give_back(&self, credits: i64) -> bool {
        self.0.fetch_sub(credits, Ordering::AcqRel) == credits
    }
}

/// The credits of one latch that a worker holds.
#[derive(Debug, Default)]
pub struct Credits(i64);

impl Credits {
    /// Spends a credit on a new task, drawing from the latch if none is held.
    pub fn spend(&mut self, latch: &Latch) {
        if self.0 == 0 {
            latch.draw(BATCH);
            self.0 = BATCH;
        }
        self.0 -= 1;
    }

    /// Regains the credit of a completed task; returns the surplus to the latch, but never the last credit.
    pub fn regain(&mut self, latch: &Latch) {
        self.0 += 1;
        if self.0 > 2 * BATCH {
            let fired = latch.give_back(BATCH);
            debug_assert!(!fired, "credits are still held");
            self.0 -= BATCH;
        }
    }

    /// Returns all credits; true if they were the last of the latch.
    #[must_use]
    pub fn return_all(&mut self, latch: &Latch) -> bool {
        let held = std::mem::take(&mut self.0);
        held > 0 && latch.give_back(held)
    }
}
