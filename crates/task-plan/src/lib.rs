//! From a profile of a task program to a plan that says where its tasks and data blocks belong: part B of
//! J. Dokulil, S. Benkner, "Automatic Placement of Tasks to NUMA Nodes in Iterative Applications" (2021).
//!
//! 1. [`Profile`]: what a profiling run saw (who created whom, who held what, replays), as CSV files.
//! 2. [`Classes`]: tasks that were created the same way are equivalent, where a repetition counts as
//!    the same way (the paper's generalised task paths); an automaton.
//! 3. [`Affinity`]: the seconds a class of tasks loses when one of its blocks is remote, by regression
//!    over replays, with shrinkage.
//! 4. [`analyze`]: data blocks get nodes, then classes of tasks do: a [`Plan`], as CSV files; tried on the tasks of the
//!    profile against no plan and the program's hints.
//!
//! Files are read and written in [`profile`] and [`plan`] only; the rest is pure and deterministic.

#![forbid(unsafe_code)]

mod affinity;
mod analysis;
mod classes;
mod compare;
mod data;
mod files;
mod model;
mod noise;
mod place;
pub mod plan;
pub mod profile;
mod recursion;
mod remote;

pub use affinity::{Affinity, Estimate};
pub use analysis::{
    Analysis, AnalyzeError, Distribution, Doubt, LARGER, Options, Refusal, Scales, analyze,
};
pub use classes::{ClassId, Classes, Letter};
pub use compare::Tried;
pub use files::FileError;
pub use model::{SECONDS_PER_TASK, seconds_per_byte};
pub use plan::{PLAN_FOLDER, Plan, PlanBlock, PlanChild, PlanClass, read_plan, write_plan};
pub use profile::{
    Access, Block, PROFILE_FOLDER, Profile, Replay, Task, read_profile, write_profile,
};
pub use remote::Traffic;
