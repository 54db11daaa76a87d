//! The data types of numaloc, shared by all other crates.
//!
//! No I/O, no clock, no environment, no serialisation. Each type states its unit, its index kind
//! and its invariants; files and foreign formats are in `numaloc-formats`.
//!
//! | module | holds |
//! |---|---|
//! | [`ids`] | distinct types for threads, PUs, nodes, pages and other indexes |
//! | [`comm`] | the communication matrix (threads x threads, sparse rows) |
//! | [`groups`] | which pairs communicate at the same time (DeLoc) |
//! | [`marks`] | points in the program that every run passes |
//! | [`sites`] | which functions and lines communicate and access memory |
//! | [`mpi`] | time in MPI calls, and which ranks wait for which |
//! | [`pages`] | how often each thread accessed each page |
//! | [`conditions`] | what influenced a recorded run: its environment, and how work was distributed |
//! | [`profile`] | a recorded run: threads, slices, communication, pages, objects |
//! | [`plan`] | mapping, placement, and the plan that carries both to another run |
//! | [`roles`] | plans by role, for programs whose threads and processes come and go |
//! | [`segments`] | names that people use for the memory of well-known programs, and rules for them |
//! | [`policy`] | memory policies of the kernel under which pages are placed |
//! | [`trace`] | the events of a thread in an access trace |
//! | [`maps`] | a line of `/proc/PID/maps` |
//! | [`number`] | formatting of numbers and sizes for users |
//! | [`outcome`] | the measured or simulated result of a plan |

#![forbid(unsafe_code)]

pub mod access;
pub mod comm;
pub mod conditions;
mod flaw;
pub mod groups;
pub mod ids;
pub mod maps;
pub mod marks;
pub mod mpi;
pub mod number;
pub mod outcome;
pub mod pages;
pub mod plan;
pub mod policy;
pub mod profile;
pub mod roles;
pub mod segments;
pub mod sites;
pub mod trace;

pub use access::{Access, Served};
pub use comm::{CommError, CommMatrix, Layer};
pub use groups::{GroupPair, TaskGroup};
pub use ids::{
    ClusterIdx, LogicalNode, LogicalPu, ObjectIdx, OsNode, OsPu, PageNumber, SliceIdx, ThreadIdx,
};
pub use maps::MapsLine;
pub use marks::{MarkKind, MarkPlace, MarkRow};
pub use mpi::{MpiCall, MpiWait, WaitKind};
pub use pages::{PageUsage, ThreadAccess};
pub use plan::{Mapping, Placement, Plan};
pub use policy::{MemoryPolicy, PolicyMode};
pub use profile::{Named, Profile, ProfileBuilder, ProfileError, ThreadRole};
pub use sites::{CodePlace, SiteKind, SiteRow};
