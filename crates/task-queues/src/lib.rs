//! The lock-free parts of the task runtime, alone so that a model checker can look at them.
//!
//! - [`Deque`]: one per worker; the owner works last-in first-out, thieves take the oldest.
//! - [`Inbox`]: one per NUMA node; anybody puts in, one worker takes all.
//! - [`Latch`] and [`Credits`]: completion of a finish scope without an atomic per task.
//!
//! All atomics come through [`sync`], which the model checker replaces (`--cfg loom`), so what is
//! checked is what runs.

mod deque;
mod inbox;
mod latch;
mod padded;
pub mod sync;

pub use deque::{Deque, Steal};
pub use inbox::{Drain, Inbox, Linked};
pub use latch::{Credits, Latch};
pub use padded::Padded;
