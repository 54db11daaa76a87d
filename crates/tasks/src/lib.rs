//! A task runtime with the interface of the Open Community Runtime (OCR 1.1), whose data the runtime
//! knows: tasks (EDTs) say which data blocks they use and how, so the runtime can put both where they
//! belong on a NUMA machine, and can run a task again with its data elsewhere to see what that costs.
//!
//! The paper: J. Dokulil, S. Benkner, "Automatic Placement of Tasks to NUMA Nodes in Iterative
//! Applications" (2021). This crate is its parts A (profiling run) and C (tuned run); part B, the
//! analysis, is `numaloc-task-plan`. Programs link `libnumaloc_ocr` (crate `numaloc-ocr`), which adds
//! `main`.
//!
//! Where things are: the C calls in `api`; objects and GUIDs in `object` and `arena`; tasks in
//! `edt`, their ends in `scope`; `event`s; data `block`s and their `memory`; who runs what in
//! `scheduler`; waiting inside tasks in `legacy`, who has nothing to do in `idle`, what a run that cannot go
//! on says in `stuck` and `crash`; the profiling run in `record` and `replay`; the plan's look-up in `plan`.
//!
//! Unsafe code: this crate is a C library in Rust. Every object is reached through raw pointers; the
//! rules that make that sound are in `object` (memory of objects stays memory of objects), `edt` (a
//! ready task belongs to whoever has it) and `worker` (a worker belongs to its thread; no reference
//! to it is kept while a task's code runs).

pub mod abi;
pub mod api;
mod arena;
mod block;
mod collective;
pub mod config;
mod crash;
mod edt;
mod event;
mod hint;
mod idle;
mod kinds;
mod label;
mod legacy;
mod machine;
pub mod memory;
mod names;
mod object;
mod plan;
mod record;
mod replay;
pub mod runtime;
mod scheduler;
mod scope;
pub mod stats;
mod stuck;
pub mod worker;

pub use config::Config;
pub use runtime::{Outcome, run};
