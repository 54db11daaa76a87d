//! Merges the files of all ranks into one profile.
//!
//! Ranks are the profile's threads: thread `k` is rank `k`, path `r{k}`. Messages of the program
//! (point-to-point, one-sided) are layer [`Layer::Message`], those of the library inside collectives
//! [`Layer::Collective`], so that each can be viewed separately. A get counts from the peer it reads
//! to the rank that called it: direction of data flow, not of the call. The library's own estimate per collective
//! ([`Kind::Operation`]) is a second view of the same messages and is left out.
//!
//! Two passes over the files, with one block in memory at a time. The result is bounded too: at most
//! [`Options::slices`] slices and [`Options::rows`] rows. If there would be more rows, neighbouring
//! slices are merged until the limit holds. Sums stay exact; only the time resolution decreases.
//!
//! Deviation from DeLoc II-B1: the paper logs every event with its time stamp; here the events of a
//! pair are summed over slices of 1 ms (doubled in long runs), because a log of a real run is
//! not bounded, and the paper's own next step (II-C) sums events per time stamp anyway.

use std::collections::BTreeMap;
use std::path::PathBuf;

use numaloc_identity::ThreadPath;
use numaloc_model::comm::Layer;
use numaloc_model::pages::PageUsage;
use numaloc_model::profile::{Clock, CommRow, CommSums, Meta, Profile, Slice, Thread};
use numaloc_model::{SliceIdx, ThreadIdx};

use crate::rank_file::{Block, Header, Kind, RankFile, RankFileError, Source, Tail};

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
}

struct Seen {
    path: PathBuf,
    header: Header,
    first_ns: u64,
    last_ns: u64,
}

/// Merges rank files into a profile of `command`.
///
/// # Errors
/// [`MergeError`] if there is no file, or none is usable. Damaged files and tails are not errors: the profile's notes
/// state what is missing, and it is marked incomplete.
pub fn merge(
    files: &[PathBuf],
    command: &[String],
    options: Options,
) -> Result<Merged, MergeError> {
    let mut notes = Vec::new();
    let mut complete = true;
    let mut seen = Vec::new();
    let mut longest = 1;
    let mut unusable = None;
    for path in files {
        let mut file = match RankFile::open(path) {
            Ok(file) => file,
            // A rank was killed while it began its file; the messages of the others are still used.
            Err(error) => {
                complete = false;
                notes.push(format!("a rank's file is left out: {error}"));
                unusable = unusable.or(Some(error));
                continue;
            }
        };
        let (mut first_ns, mut last_ns, mut lost) = (u64::MAX, 0, 0);
        while let Some(block) = file.next_block()? {
            match block {
                Block::Slice {
                    start_ns, end_ns, ..
                } => {
                    first_ns = first_ns.min(start_ns);
                    last_ns = last_ns.max(end_ns);
                    longest = longest.max(end_ns - start_ns);
                }
                Block::End { at_ns, dropped, .. } => {
                    first_ns = first_ns.min(at_ns);
                    last_ns = last_ns.max(at_ns.saturating_add(1));
                    lost = dropped;
                }
            }
        }
        let rank = file.header().rank;
        let problem = match file.tail() {
            _ if lost > 0 => Some(format!("rank {rank}: {lost} messages could not be written")),
            Some(Tail::Cut) => Some(format!("rank {rank} ended without MPI_Finalize or exit")),
            Some(Tail::Damaged { bytes }) => {
                Some(format!("rank {rank}: last {bytes} bytes unusable"))
            }
            _ => None,
        };
        complete &= problem.is_none();
        notes.extend(problem);
        seen.push(Seen {
            path: path.clone(),
            header: file.header().clone(),
            first_ns,
            last_ns,
        });
    }
    if let (true, Some(error)) = (seen.is_empty(), unusable) {
        return Err(error.into());
    }
    let seen = main_world(seen, &mut notes)?;

    let size = seen
        .iter()
        .map(|s| {
            s.header
                .world_size
                .unwrap_or(s.header.rank.saturating_add(1))
        })
        .max();
    let size = size.ok_or(MergeError::NoRanks)?;
    let of_files = u32::try_from(seen.len() * RANKS_PER_FILE).unwrap_or(MAX_RANKS);
    let most = of_files.clamp(ALWAYS_ACCEPTED_RANKS, MAX_RANKS);
    for s in &seen {
        if size > most || s.header.rank >= size {
            return Err(MergeError::TooManyRanks {
                path: s.path.clone(),
                rank: s.header.rank,
                size,
                files: seen.len(),
                most,
            });
        }
    }
    let end = seen.iter().map(|s| s.last_ns).max().unwrap_or(0).max(1);
    let mut slice_ns = longest;
    while end.div_ceil(slice_ns) > options.slices.max(1) as u64 {
        slice_ns *= 2;
    }

    let mut threads: Vec<Thread> = (0..size).map(thread).collect();
    let mut sites = vec![None; size as usize];
    let mut sums = CommSums::default();
    let mut modelled = false;
    let mut to_self = (0u64, 0u64);
    for s in &seen {
        let rank = s.header.rank;
        let this = &mut threads[rank as usize];
        if this.pid == 0 {
            (this.pid, this.tid) = (s.header.pid, s.header.pid);
            this.start = s.first_ns.min(s.last_ns);
        }
        this.end = this.end.max(s.last_ns);
        sites[rank as usize] = Some(RankSite {
            host: s.header.host.clone(),
            affinity: s.header.affinity.clone(),
        });
        let mut file = RankFile::open(&s.path)?;
        while let Some(block) = file.next_block()? {
            let Block::Slice {
                start_ns, entries, ..
            } = block
            else {
                continue;
            };
            for entry in entries {
                if entry.peer >= size {
                    let path = s.path.clone();
                    return Err(MergeError::Peer {
                        path,
                        rank,
                        peer: entry.peer,
                        size,
                    });
                }
                let (layer, src, dst) = match entry.kind {
                    Kind::PointToPoint | Kind::Persistent | Kind::Put => {
                        (Layer::Message, rank, entry.peer)
                    }
                    Kind::Get => (Layer::Message, entry.peer, rank),
                    Kind::Collective | Kind::Started | Kind::Modelled => {
                        (Layer::Collective, rank, entry.peer)
                    }
                    Kind::Operation => continue,
                };
                modelled |= entry.kind == Kind::Modelled;
                // A rank's messages to itself move no data between places.
                if src == dst {
                    to_self.0 = to_self.0.saturating_add(entry.events);
                    to_self.1 = to_self.1.saturating_add(entry.bytes);
                    continue;
                }
                sums.add(CommRow {
                    slice: SliceIdx((start_ns / slice_ns) as u32),
                    src: ThreadIdx(src),
                    dst: ThreadIdx(dst),
                    layer,
                    events: entry.events,
                    bytes: entry.bytes,
                });
            }
            while sums.len() > options.rows && end > slice_ns {
                sums = halve(sums);
                slice_ns *= 2;
            }
        }
    }

    if modelled {
        notes.push(
            "collective messages are modelled: decomposed by the standard algorithm for their size, \
             because this MPI library does not tell which messages it sends"
                .to_owned(),
        );
    }
    if to_self.0 > 0 {
        notes.push(format!(
            "{} messages of ranks to themselves, {} bytes together, are left out: they move no data between places",
            to_self.0, to_self.1
        ));
    }
    let missing: Vec<u32> = (0..size).filter(|&r| sites[r as usize].is_none()).collect();
    if let Some(first) = missing.first() {
        complete = false;
        let mut hosts: Vec<&str> = sites
            .iter()
            .flatten()
            .map(|site| site.host.as_str())
            .collect();
        hosts.sort_unstable();
        hosts.dedup();
        let more = hosts.len().saturating_sub(8);
        hosts.truncate(8);
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        notes.push(format!(
            "{} of {size} ranks wrote no file, rank {first} first; files came from {}{more}: do all hosts see the folder of \
             the output?",
            missing.len(),
            hosts.join(", ")
        ));
    }
    let pmpi = seen.iter().any(|s| s.header.source == Source::Pmpi);
    notes.push(format!(
        "{size} MPI ranks, observed through {}{}",
        if pmpi {
            "the MPI profiling interface"
        } else {
            "Open MPI's monitoring layer"
        },
        if options.memory {
            ""
        } else {
            "; memory accesses were not traced"
        }
    ));
    let slices = (0..end.div_ceil(slice_ns))
        .map(|k| Slice {
            start: k * slice_ns,
            end: (k + 1).saturating_mul(slice_ns).min(end),
        })
        .collect();
    let communication = sums.into_rows().collect();
    let profile = Profile {
        meta: Meta {
            command: command.to_vec(),
            frontend: "mpi".to_owned(),
            clock: Clock::Wall,
            line_size: 64,
            complete,
            notes,
            sampled: 1.0,
            dram_source: None,
            conditions: numaloc_model::conditions::Conditions::default(),
        },
        threads,
        slices,
        communication,
        pages: PageUsage::new(4096),
        page_slices: Vec::new(),
        access_slices: Vec::new(),
        objects: Vec::new(),
        cell_errors: Vec::new(),
        shared_lines: Vec::new(),
        slow_loads: None,
    };
    Ok(Merged { profile, sites })
}

/// The files of the largest world. Other worlds (spawned, singletons, other launches) are recorded in the notes.
fn main_world(seen: Vec<Seen>, notes: &mut Vec<String>) -> Result<Vec<Seen>, MergeError> {
    let mut worlds: BTreeMap<String, Vec<Seen>> = BTreeMap::new();
    for s in seen {
        worlds.entry(s.header.job.clone()).or_default().push(s);
    }
    // Ties: the first world by name.
    let main = worlds
        .iter()
        .rev()
        .max_by_key(|(_, files)| files.len())
        .map(|(job, _)| job.clone())
        .ok_or(MergeError::NoRanks)?;
    let mut files = worlds.remove(&main).unwrap_or_default();
    // The shims' names for worlds that no launcher started (shims/mpi/library.h).
    let of = |start: &str| {
        let named = worlds.iter().filter(|(job, _)| job.starts_with(start));
        named.fold((0, 0), |(worlds, processes), (_, files)| {
            (worlds + 1, processes + files.len())
        })
    };
    let (all, spawned, single) = (of(""), of("spawned"), of("singleton"));
    for ((worlds, processes), made) in [
        (spawned, "created by MPI_Comm_spawn"),
        (single, "of one process each, started without a launcher"),
        (
            (all.0 - spawned.0 - single.0, all.1 - spawned.1 - single.1),
            "started by other launches",
        ),
    ] {
        if processes > 0 {
            notes.push(format!(
                "{processes} processes of {worlds} other worlds are left out: {made}"
            ));
        }
    }
    files.sort_by(|a, b| (a.header.rank, &a.path).cmp(&(b.header.rank, &b.path)));
    Ok(files)
}

fn thread(rank: u32) -> Thread {
    Thread {
        path: ThreadPath::of_rank(rank),
        label: Some("MPI rank".to_owned()),
        pid: 0,
        tid: 0,
        rank: Some(rank),
        start: 0,
        end: 0,
        accesses: 0,
        read_bytes: 0,
        write_bytes: 0,
        dram_bytes: None,
    }
}

/// Merges slices in neighbouring pairs.
fn halve(sums: CommSums) -> CommSums {
    let mut halved = CommSums::default();
    for row in sums.into_rows() {
        halved.add(CommRow {
            slice: SliceIdx(row.slice.0 / 2),
            ..row
        });
    }
    halved
}
