//! Hardware samples of memory accesses: from the machine's own PMU while the program runs at nearly
//! native speed, or from a `perf.data` file of `perf mem record`, `perf c2c record` or `perf record -d`.
//!
//! | module | holds |
//! |---|---|
//! | [`events`] | which events of this machine sample data addresses, found in sysfs |
//! | [`live`] | a program run under those events |
//! | [`uncore`] | what the memory system of this machine counts, found in sysfs |
//! | [`live::counting`] | those counters, opened and read |
//! | [`mod@import`] | `perf.data` files, hostile until checked |
//! | [`record`] | one kernel record, from bytes to an event |
//! | [`data_src`] | what a sample says of load, store and who answered |
//! | [`lineage`] | who made whom: stable thread paths |
//! | [`board`] | communication as ComDetective and CMLB define it |
//! | [`collect`] | events in time order to a profile |
//!
//! What samples cannot tell, and how that is dealt with: docs/perf.md.

#![deny(unsafe_code)]

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
pub use import::import;
pub use live::Session;
