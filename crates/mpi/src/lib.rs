//! MPI programs: merges the messages counted by each rank into one profile, and exports plans to MPI
//! launchers.
//!
//! | module | does |
//! |---|---|
//! | [`shims`] | selects the preload library for a program and passes it through the launcher |
//! | [`record`] | runs a program under the tracer |
//! | [`launcher`] | identifies the launcher of a command line |
//! | [`rank_file`] | reads the counts of one rank |
//! | [`mod@merge`] | merges the counts of all ranks into a profile |
//! | [`mod@gather`] | prepares folders on hosts that share none, and gathers what ranks wrote there |
//! | [`passing`] | sees to it that the launcher passes the tracer's variables to the ranks |
//! | [`peers`] | processes of an MPI program of ours, and their messages |
//! | [`rank_map`] | determines where a plan places each rank |
//! | [`mod@one_list`] | finds one list of PUs that serves all hosts |
//! | [`export`] | writes a rank map in the notation of each launcher |
//! | [`run`] | runs a program under a plan and checks where its ranks were |
//! | [`under`] | traces the memory accesses of ranks too |
//! | [`hybrid`] | combines both traces |
//! | [`monitoring_dump`] | reads Open MPI's own counts |
//!
//! The C side is in `shims/mpi`; this crate's build script compiles it into the crate.

#![forbid(unsafe_code)]

pub mod export;
pub mod gather;
pub mod hybrid;
pub mod launcher;
pub mod merge;
pub mod monitoring_dump;
pub mod one_list;
pub mod passing;
pub mod peers;
pub mod rank_file;
pub mod rank_map;
pub mod record;
pub mod run;
pub mod shims;
pub mod under;

pub use launcher::Launcher;
pub use merge::{MergeError, Merged, Options, RankSite, merge};
pub use rank_map::{RankMap, RankMapError, RankPlace};
