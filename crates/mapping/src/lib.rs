//! Thread policies: compute a mapping from communication and a machine.
//!
//! A [`MapInput`] is one problem: the communication matrix, the machine, and if known the tasks' loads and groups of
//! concurrent communication. A policy of the [`registry`] solves it through [`map`], which checks input and output;
//! [`mod@evaluate`] rates an answer from scratch. Policies read no file and no clock; random choices come from the
//! input's seed.
//!
//! To add a policy: one file in `policies/` (a struct with its parameters, the trait, its source,
//! deviations, cost and tie rule, tests) and one line in `policies/mod.rs`.
//!
//! All are compared by the cost J = sum over unordered pairs of weight(i, j) x distance(PU of i, PU of j), with at most
//! ceil(N/P) of N tasks on each of P PUs.

#![deny(unsafe_code)]

mod distance;
mod error;
mod evaluate;
mod hierarchy;
mod input;
mod lower_bound;
pub mod policies;
mod policy;
mod repair;
mod scotch_sys;
mod slots;
mod tasks;

pub use distance::Distances;
pub use error::{MapError, MappingFlaw};
pub use evaluate::{Evaluation, between_hosts, check_mapping, cost, evaluate, node_loads, remote};
pub use input::{Expired, MapInput};
pub use lower_bound::lower_bound;
pub use policies::{by_name, registry};
pub use policy::{Mapped, MappingPolicy, map};
pub use slots::{Slots, Spread, cores_first};
pub use tasks::{Direction, TaskGraph};
