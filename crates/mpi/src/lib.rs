//! MPI programs: from the messages each rank counted to one profile, and from a plan to the words
//! each launcher understands.
//!
//! | module | question |
//! |---|---|
//! | [`shims`] | which preload library does this program need, and how is it handed through the launcher? |
//! | [`record`] | how is a program run under the tracer? |
//! | [`launcher`] | which launcher starts it? |
//! | [`rank_file`] | what did one rank count? |
//! | [`mod@merge`] | what did all ranks count, as a profile? |
//! | [`rank_map`] | where does a plan put each rank? |
//! | [`mod@one_list`] | does one list of PUs serve all hosts? |
//! | [`export`] | how does each launcher say so? |
//! | [`run`] | how is a program run under a plan, and were its ranks there? |
//! | [`under`] | how are the memory accesses of ranks traced too? |
//! | [`hybrid`] | what do both traces say together? |
//! | [`monitoring_dump`] | what does Open MPI itself say? |
//!
//! The C side lives in `shims/mpi` and is compiled into this crate by its build script.

#![forbid(unsafe_code)]

pub mod export;
pub mod hybrid;
pub mod launcher;
pub mod merge;
pub mod monitoring_dump;
pub mod one_list;
pub mod rank_file;
pub mod rank_map;
pub mod record;
pub mod run;
pub mod shims;
pub mod under;

pub use launcher::Launcher;
pub use merge::{MergeError, Merged, Options, RankSite, merge};
pub use rank_map::{RankMap, RankMapError, RankPlace};
