//! The lock-free parts of the task runtime, in a crate of their own so that a model checker can run them.
//!
//! - [`Deque`]: one per worker; the owner works last-in first-out, thieves take the oldest.
//! - [`Inbox`]: one per NUMA node; any thread pushes, one worker takes all.
//! - [`Latch`] and [`Credits`]: completion of a finish scope without an atomic per task.
//!
//! All atomics come from [`sync`], which the model checker replaces (`--cfg loom`), so the checked code is the code
//! that runs.

mod deque;
mod inbox;
mod latch;
mod padded;
pub mod sync;

pub use deque::{Deque, Steal};
pub use inbox::{Drain, Inbox, Linked};
pub use latch::{Credits, Latch};
pub use padded::Padded;
