//! A task runtime after the Open Community Runtime (OCR 1.1). Tasks (EDTs) declare which data blocks they use and in
//! which mode, so the runtime can place both on a NUMA machine, and can run a task again with its data on another node
//! to measure what the distance costs. Programs link `libnumaloc_ocr` (crate `numaloc-ocr`), the C interface to it.
//!
//! The paper: J. Dokulil, S. Benkner, "Automatic Placement of Tasks to NUMA Nodes in Iterative
//! Applications" (2021). This crate is its parts A (profiling run) and C (tuned run); part B, the
//! analysis, is `numaloc-task-plan`.
//!
//! From the bottom: settings, machine and memory ([`config`], `machine`, [`memory`], `names`, `plan`); the memory of
//! objects ([`objects`]); the state of a run ([`state`]); the schedulers (`scheduler`), which know the beginning of a
//! task only; what is done with objects ([`objects`]); what is known about a run ([`observe`]); a run ([`runtime`]). No
//! file uses one that uses it. Where something below needs something above, [`state`] has a trait for it.
//!
//! Unsafe code: every object is reached through raw pointers; the rules that make that sound are in `objects::header`
//! and `objects::arena` (memory of objects is only reused for objects), `objects::tasks` (a ready task has exactly one
//! owner) and [`state`] (a worker belongs to its thread; no reference to it is kept while a task's code runs).

pub mod config;
pub mod error;
mod fit;
pub mod guid;
mod machine;
pub mod memory;
mod names;
pub mod objects;
pub mod observe;
mod placement;
mod plan;
pub mod runtime;
mod scheduler;
pub mod state;

pub use config::Config;
pub use guid::Guid;
pub use machine::NO_NODE;
pub use runtime::{Outcome, run};
