//! A task runtime with the interface of the Open Community Runtime (OCR 1.1). Tasks (EDTs) declare which data blocks
//! they use and in which mode, so the runtime can place both on a NUMA machine, and can run a task again with its data
//! on another node to measure what the distance costs.
//!
//! The paper: J. Dokulil, S. Benkner, "Automatic Placement of Tasks to NUMA Nodes in Iterative
//! Applications" (2021). This crate is its parts A (profiling run) and C (tuned run); part B, the
//! analysis, is `numaloc-task-plan`. Programs link `libnumaloc_ocr` (crate `numaloc-ocr`), which adds
//! `main`.
//!
//! Modules: the C calls are in `api`; objects and GUIDs in `object` and `arena`; tasks in `edt`, their finish scopes in
//! `scope`; events in `event`; data blocks in `block`, their memory in `memory`; the schedulers in `scheduler`; waiting
//! inside tasks in `legacy`, tracking of idle workers in `idle`, reports about a blocked or crashed run in `stuck` and
//! `crash`; the profiling run in `record` and `replay`; the plan's look-up in `plan`.
//!
//! Unsafe code: this crate is a C library in Rust. Every object is reached through raw pointers; the rules that make
//! that sound are in `object` (memory of objects is only reused for objects), `edt` (a ready task has exactly one
//! owner) and `worker` (a worker belongs to its thread; no reference to it is kept while a task's code runs).

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
