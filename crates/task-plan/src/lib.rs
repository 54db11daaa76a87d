//! Computes, from a profile of a task program, a plan that places its tasks and data blocks: part B of J. Dokulil, S.
//! Benkner, "Automatic Placement of Tasks to NUMA Nodes in Iterative Applications" (2021).
//!
//! 1. [`TaskProfile`]: what a profiling run recorded (who created and held what, replays), as CSV files.
//! 2. [`Classes`]: tasks that were created in the same way are equivalent, up to repetition (the paper's generalised
//!    task paths); an automaton.
//! 3. [`Affinity`]: the seconds a class of tasks loses when one of its blocks is remote, by regression over replays,
//!    with shrinkage.
//! 4. [`analyse`]: assigns nodes to data blocks, then to classes of tasks: a [`TaskPlan`], as CSV files; simulated on
//!    the tasks of the profile against no plan and the program's hints.
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
    AnalyseError, Analysis, Distribution, Doubt, LARGER, Options, Refusal, Scales, analyse,
};
pub use classes::{ClassId, Classes, Letter};
pub use compare::SimulatedRun;
pub use files::FileError;
pub use model::{Patience, SECONDS_PER_TASK, Stealing, seconds_per_byte};
pub use plan::{PLAN_FOLDER, PlanBlock, PlanChild, PlanClass, TaskPlan, read_plan, write_plan};
pub use profile::{
    Access, Block, PROFILE_FOLDER, Replay, Task, TaskProfile, read_profile, write_profile,
};
pub use remote::Traffic;
