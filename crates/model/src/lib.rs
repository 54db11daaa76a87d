//! The nouns of numaloc: what every other crate talks about.
//!
//! No I/O, no clock, no environment, no serialisation. A type here states its unit, its index kind
//! and the invariants it keeps; files and foreign formats live in `numaloc-formats`.
//!
//! | module | holds |
//! |---|---|
//! | [`ids`] | distinct types for distinct numbers: threads, PUs, nodes, pages |
//! | [`comm`] | the communication matrix (threads x threads, sparse rows) |
//! | [`groups`] | which pairs communicate at the same time (DeLoc) |
//! | [`pages`] | which thread touched which page how often |
//! | [`conditions`] | what shaped a recorded run: its environment, and how work reached the threads |
//! | [`profile`] | a whole recorded run: threads, slices, communication, pages, objects |
//! | [`hybrid`] | one amount for the messages and the shared memory of ranks with threads |
//! | [`plan`] | mapping, placement, and the plan that carries both to another run |
//! | [`trace`] | what the access trace tells of a thread |
//! | [`maps`] | a line of `/proc/PID/maps` |
//! | [`number`] | numbers and sizes as people write them |
//! | [`outcome`] | what a run or a simulation under a plan was measured to do |

#![forbid(unsafe_code)]

pub mod comm;
pub mod conditions;
pub mod groups;
pub mod hybrid;
pub mod ids;
pub mod maps;
pub mod number;
pub mod outcome;
pub mod pages;
pub mod plan;
pub mod profile;
pub mod trace;

pub use comm::{CommError, CommMatrix, Layer};
pub use groups::{GroupPair, TaskGroup};
pub use ids::{
    ClusterIdx, LogicalNode, LogicalPu, ObjectIdx, OsNode, OsPu, PageNumber, SliceIdx, ThreadIdx,
};
pub use maps::MapsLine;
pub use pages::{PageUsage, ThreadAccess};
pub use plan::{Mapping, Placement, Plan};
pub use profile::Profile;
