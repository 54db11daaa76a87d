//! Planning: from a profile and a machine to a mapping of threads and a placement of pages.
//!
//! Everything between a profile and its plan is decided here, for every command that plans:
//!
//! | module | decides |
//! |---|---|
//! | [`registry`] | which policies there are, what they do, where they come from |
//! | [`subject`] | which threads are planned, by which layer, in which unit, with which load |
//! | [`communication`] | the input of thread policies: matrix, direction, groups of concurrent communication, load |
//! | `together` | whether the threads of a rank must stay on one host, and how policies are made to keep them there |
//! | [`threads`], [`pages`], [`joint`] | how policies are run and how their answers are rated |
//! | [`mod@dynamic`] | later moves, by phase |
//! | [`online`] | moves of a running program, from observed accesses |
//! | [`mod@plan`] | the whole: [`PlanRequest`] in, [`Planned`] out, and the plan assembled from it |
//! | [`mod@best`] | the default plan: which candidates there are, and which is the best by their worth |
//! | [`worth`] | seconds of a run with threads and pages in given places |
//! | [`ranks`] | seconds of a run of ranks on the hosts of a cluster, where its launcher starts them, the best mapping |
//! | [`unplanned`] | what a run without a plan is expected to do |
//! | [`memory`] | advice that no page policy gives: nodes that fill up, saturated controllers, copies per node |
//! | [`json`] | the answers as data, for the program and the Python package |
//! | [`roles`] | plans by role, for programs whose threads and processes come and go |
//! | [`changes`] | changes of the program that save more than the model's error, without an access trace |
//! | [`candidates`] | the answers that the verdicts of the analysis judge |
//! | [`mod@reference`] | the machine that a profile is characterised for, and the characterisation with its verdicts |
//!
//! No I/O and no clock: the caller reads the profile, resolves the machine, and follows the work through an
//! [`Observer`], which also measures its time.

#![forbid(unsafe_code)]

mod accesses;
pub mod best;
mod best_ranks;
pub mod candidates;
pub mod changes;
pub mod communication;
pub mod dynamic;
mod error;
pub mod joint;
pub mod json;
pub mod memory;
mod observer;
pub mod online;
mod options;
pub mod pages;
pub mod plan;
mod private_cache;
pub mod ranks;
pub mod reference;
pub mod registry;
pub mod roles;
pub mod subject;
#[cfg(test)]
mod tests;
pub mod threads;
mod together;
pub mod unplanned;
pub mod worth;

pub use best::{Ranking, Rated};
pub use communication::Communication;
pub use dynamic::{Detector, Dynamic, Dynamics, dynamic};
pub use error::PlanError;
pub use observer::{Observer, Unobserved, Work};
pub use options::Options;
pub use pages::PageAnswer;
pub use plan::{PlanRequest, Planned, plan};
pub use ranks::RankRanking;
pub use reference::Reference;
pub use registry::{Choice, Open, ThreadPolicy, UnknownPolicy};
pub use subject::{Scope, Subject, Unit};
pub use threads::ThreadAnswer;
pub use unplanned::Unplanned;
pub use worth::Worth;
