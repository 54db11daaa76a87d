//! The tracing engine, shared by all exact frontends, and the way from its journals to a profile.
//!
//! Inside the program under study: [`engine`] (what its threads share), [`thread`] (the hot path), [`block`], [`shadow`], [`mod@line`],
//! [`readers`], [`pages`], [`reservation`] (where their tables lie), [`cross_process`] (memory that processes share), [`journal`],
//! [`access_trace`], and in `extra` the layers for comparison. In the recorder: [`mod@assemble`] reads the journals, [`objects`],
//! [`variables`] and [`sites`] name the memory.

#![deny(unsafe_op_in_unsafe_fn)]

pub mod access_trace;
pub mod block;
pub mod cross_process;
pub mod engine;
mod extra;
pub mod line;
pub mod memory;
pub mod pages;
pub mod readers;
pub mod reservation;
pub mod shadow;
pub mod sharing;
pub mod thread;
mod underway;
pub mod watch;

pub use engine::{Config, Engine, PendingThread};
pub use numaloc_identity as identity;
pub use numaloc_journal::{self as journal, Record};
pub use numaloc_model::conditions::WorkSharing;
pub use numaloc_model::{Layer, MapsLine};
pub use thread::ThreadTracer;
pub use watch::Watched;
