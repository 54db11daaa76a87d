//! Small parallel programs whose use of memory is known by construction: `numaloc validate` runs them on a machine, and
//! compares what numaloc predicts with what is measured.
//!
//! | module | holds |
//! |---|---|
//! | [`list`] | the kernels: what each does, who touches its memory first, which threads use it how much |
//! | `team` | threads, memory and time: what all kernels share |
//!
//! Each kernel is an ordinary parallel program: threads that share memory and meet at barriers. Memory consists of
//! blocks, each touched first by the main thread or by one of the threads. For each block it is known how often each
//! thread accesses it, so the share of remote accesses follows from where pages and threads were, without a recording
//! and without counters.
//!
//! The crate knows nothing of numaloc and of the machine: the caller says on which node a thread runs, and looks up
//! the nodes of the blocks.

#![forbid(unsafe_code)]

pub mod list;
mod team;

pub use list::{KERNELS, Kernel, named};
pub use team::{Block, Outcome, Use, Work};
