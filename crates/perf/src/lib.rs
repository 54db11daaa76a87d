//! Samples memory accesses in hardware: with the machine's own PMU while the program runs at nearly
//! native speed, or from a `perf.data` file of `perf mem record`, `perf c2c record` or `perf record -d`.
//!
//! | module | holds |
//! |---|---|
//! | [`events`] | the events of this machine that sample data addresses, found in sysfs |
//! | [`live`] | runs a program under those events |
//! | [`live::watch`] | samples programs that run already |
//! | [`uncore`] | what the memory system of this machine counts, found in sysfs |
//! | [`live::counting`] | opens and reads those counters |
//! | [`mod@import`] | imports `perf.data` files, which are untrusted input |
//! | [`record`] | parses one kernel record into an event |
//! | [`data_src`] | decodes a sample's operation (load or store) and the level that served it |
//! | [`areas`] | objects by the mappings of processes |
//! | [`lineage`] | tracks thread creation: stable thread paths |
//! | [`board`] | communication as ComDetective and CMLB define it |
//! | [`collect`] | builds a profile from events in time order |
//!
//! What samples cannot show, and how that is handled: docs/perf.md.

#![deny(unsafe_code)]

pub mod areas;
pub mod board;
pub mod collect;
pub mod data_src;
pub mod error;
pub mod events;
pub mod import;
pub mod lineage;
pub mod live;
pub mod record;
pub mod uncore;

pub use collect::{Options, Origin};
pub use error::PerfError;
pub use import::{header_in, import};
pub use live::Session;
