//! Merges the files of all ranks into one profile.
//!
//! Ranks are the profile's threads: thread `k` is rank `k`, path `r{k}`. Messages of the program
//! (point-to-point, one-sided) are layer [`Layer::Message`], those of the library inside collectives
//! [`Layer::Collective`], so that each can be viewed separately. A get counts from the peer it reads
//! to the rank that called it: direction of data flow, not of the call. The library's own estimate per
//! collective ([`Kind::Operation`]) is a second view of the same messages and is left out.
//!
//! [`Layer::Message`]: numaloc_model::Layer::Message
//! [`Layer::Collective`]: numaloc_model::Layer::Collective
//! [`Kind::Operation`]: crate::rank_file::Kind::Operation
//!
//! Two passes over the files (`survey`, `sums`), with one block in memory at a time. Between them `plan` chooses
//! the world and the slices. Many files are shared by the processes of an MPI program ([`shares`]), with the same
//! result.
//!
//! The result is bounded too: at most [`Options::slices`] slices and [`Options::rows`] rows. If there would be more
//! rows, neighbouring slices are merged until the limit holds. Sums stay exact; only the time resolution decreases.
//!
//! Deviation from DeLoc II-B1: the paper logs every event with its time stamp; here the events of a
//! pair are summed over slices of 1 ms (doubled in long runs), because a log of a real run is
//! not bounded, and the paper's own next step (II-C) sums events per time stamp anyway.

mod launch;
mod plan;
pub mod shares;
mod sums;
mod survey;
pub mod times;
mod wire;

use std::path::PathBuf;

use numaloc_model::profile::{Profile, ProfileError};

pub(crate) use self::launch::merge_files;
pub use self::launch::{Merging, ShareError, run_share};
use self::plan::Plan;
use self::sums::Sums;
use self::survey::Survey;
use crate::gather::GatherError;
use crate::rank_file::RankFileError;

/// Limits of the merged profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Largest number of slices.
    pub slices: usize,
    /// Largest number of communication rows (32 bytes each).
    pub rows: usize,
    /// Whether the memory accesses of the ranks are traced as well ([`crate::hybrid`]).
    pub memory: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            slices: 1000,
            rows: 8 << 20,
            memory: false,
        }
    }
}

/// Why the files were not merged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MergeError {
    /// A file that is not a rank file.
    #[error(transparent)]
    File(#[from] RankFileError),
    /// The files hold amounts that no run reaches.
    #[error("the rank files make no profile: {0}")]
    Profile(#[from] ProfileError),
    /// A process that shares the merge could not do its part.
    #[error("{0}")]
    Elsewhere(String),
    /// Files are still on other hosts.
    #[error(transparent)]
    Hosts(#[from] GatherError),
    /// The MPI program that merges did not end well.
    #[error("{processes} MPI processes did not merge the rank files: {why}")]
    Processes {
        /// Number of processes.
        processes: u32,
        /// What happened.
        why: String,
    },
    /// No rank wrote a file.
    #[error("no rank wrote a message file: no process of the program started MPI under the tracer")]
    NoRanks,
    /// A peer outside the world.
    #[error("{path}: rank {rank} names peer {peer}, but the world has {size} ranks", path = path.display())]
    Peer {
        /// The file.
        path: PathBuf,
        /// The rank that wrote the file.
        rank: u32,
        /// The invalid peer.
        peer: u32,
        /// Size of the world.
        size: u32,
    },
    /// More ranks than are plausible.
    #[error("{path}: rank {rank} of {size}, expected at most {most} ranks (rank files: {files})", path = path.display())]
    TooManyRanks {
        /// The file.
        path: PathBuf,
        /// The rank that wrote the file.
        rank: u32,
        /// Size of the world.
        size: u32,
        /// Number of rank files.
        files: usize,
        /// Largest world accepted with this number of files.
        most: u32,
    },
}

/// Largest world accepted at all (2^24; the largest machines run a few million ranks).
pub const MAX_RANKS: u32 = 1 << 24;
/// Largest world accepted with any number of files: each rank takes some 250 bytes, so 256 MiB.
const ALWAYS_ACCEPTED_RANKS: u32 = 1 << 20;
/// A larger world is accepted if at least one rank in this number left a file, so that the files bound the memory.
const RANKS_PER_FILE: usize = 64;

/// Where one rank ran, as recorded by its own process when MPI started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankSite {
    /// Host name.
    pub host: String,
    /// OS indexes of the PUs in its affinity mask, ascending.
    pub affinity: Vec<u32>,
}

/// A merged run.
#[derive(Clone, Debug)]
pub struct Merged {
    /// The profile.
    pub profile: Profile,
    /// By rank; `None` for a rank without a file.
    pub sites: Vec<Option<RankSite>>,
    /// Time in MPI, whose call sites have no names yet ([`Times::into_profile`](times::Times::into_profile)).
    pub times: times::Times,
}

/// Merges rank files into a profile of `command`, in this process.
///
/// # Errors
/// [`MergeError`] if there is no file, or none is usable. Damaged files and tails are not errors: the profile's notes
/// state what is missing, and it is marked incomplete.
pub fn merge(
    files: &[PathBuf],
    command: &[String],
    options: Options,
) -> Result<Merged, MergeError> {
    let plan = Plan::of(Survey::of(files)?, options)?;
    let limits = plan.limits(options);
    let mut sums = Sums::new(plan.slice_ns);
    for file in &plan.seen {
        sums.add_file(&file.path, file.header.rank, &limits)?;
    }
    plan.profile(sums, command, options)
}
