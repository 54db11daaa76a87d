//! Seconds of messages between the hosts of a cluster.
//!
//! | part | file | what |
//! |---|---|---|
//! | [`fabric`] | `fabric.rs`, `fabric/` | the links of a cluster, the routes between its hosts, the first byte's time |
//! | [`message`] | `message.rs` | one message by LogGP |
//! | [`time`] | `time.rs` | all messages of a run, in phases: what each rank does itself, and what the links take |
//!
//! A crate of its own, below policies and profiles: it knows a machine and amounts between ranks, so policies, plans
//! and simulations can all ask it. Pure: no I/O, no clock, the same input gives the same result.
//!
//! Messages follow LogGP (Alexandrov, Ionescu, Schauser, Scheiman: LogGP, SPAA 1995): a message of `n` bytes takes
//! `o + L + (n - 1) G + o`. Its limits are those of the model: links carry what they can at once, without queues in
//! switches, without rendezvous, and parallel links share their load evenly.

#![forbid(unsafe_code)]

pub mod fabric;
pub mod message;
pub mod time;

pub use fabric::{Fabric, FabricError};
pub use time::{Cell, Demand, Phase, Seat, Times, times};
