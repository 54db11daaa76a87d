//! The tracing engine, shared by all exact frontends. Runs inside the program under study.
//!
//! [`engine`] is what the threads share (`tables`, `slices`, `population`, `pending`), [`thread`] a thread's tracer
//! with the hot path, [`block`] accesses that are recorded together. Tables: [`shadow`], [`mod@line`], [`readers`],
//! [`pages`], [`sites`] (places in the code), [`reservation`] (their address space), [`cross_process`] (memory shared
//! by processes).
//! [`access_trace`] sends the access trace, `extra` counts the layers for comparison.
//! The recorder's side is the crate `numaloc-assemble`.

#![deny(unsafe_op_in_unsafe_fn)]

pub mod access_trace;
mod areas;
pub mod block;
pub mod cross_process;
pub mod engine;
mod extra;
pub mod faults;
pub mod line;
pub mod locked;
pub mod memory;
pub mod pages;
pub mod pending;
mod places;
mod population;
pub mod readers;
pub mod reservation;
pub mod shadow;
pub mod sharing;
pub mod sites;
mod slices;
mod tables;
pub mod thread;
pub mod time;
mod underway;
pub mod watch;

pub use engine::Engine;
pub use numaloc_identity as identity;
pub use numaloc_journal::settings::{self, Config};
pub use numaloc_journal::{Record, descriptors, host_name, station};
pub use numaloc_model::conditions::WorkSharing;
pub use numaloc_model::{Layer, maps, marks};
pub use pending::PendingThread;
pub use thread::ThreadTracer;
pub use watch::Watched;
