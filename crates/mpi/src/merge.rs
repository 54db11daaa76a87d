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
use std::path::{Path, PathBuf};

use numaloc_identity::ThreadPath;
use numaloc_model::comm::Layer;
use numaloc_model::profile::{
    Clock, CommRow, CommSums, Meta, Profile, ProfileBuilder, ProfileError, Slice, Thread,
    ThreadRole,
};
use numaloc_model::{SliceIdx, ThreadIdx};

use crate::rank_file::{Block, Entry, Header, Kind, RankFile, RankFileError, Source, Tail};

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
    let mut survey = Survey::of(files)?;
    if let (true, Some(error)) = (survey.seen.is_empty(), survey.unusable) {
        return Err(error.into());
    }
    let seen = main_world(survey.seen, &mut survey.notes)?;
    let size = world_size(&seen)?;
    let end = seen.iter().map(|s| s.last_ns).max().unwrap_or(0).max(1);
    let mut slice_ns = survey.longest_ns;
    while end.div_ceil(slice_ns) > options.slices.max(1) as u64 {
        slice_ns *= 2;
    }
    let mut world = World::new(size, slice_ns, end, options);
    for file in &seen {
        world.add(file)?;
    }
    let mut notes = survey.notes;
    let mut complete = survey.complete;
    notes.extend(world.omissions());
    if let Some(note) = missing(&world.sites) {
        complete = false;
        notes.push(note);
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
    let mut tables = ProfileBuilder::new(
        Meta {
            command: command.to_vec(),
            complete,
            notes,
            ..Meta::new("mpi", Clock::Wall)
        },
        4096,
    );
    tables.threads = world.threads;
    tables.slices = Slice::even(world.slice_ns, end).collect();
    tables.communication = world.sums.into_rows().collect();
    let profile = tables.build()?;
    Ok(Merged {
        profile,
        sites: world.sites,
    })
}

/// The first pass over the files: which are usable, and their times.
struct Survey {
    seen: Vec<Seen>,
    /// Length of the longest slice of a file, at least 1.
    longest_ns: u64,
    /// The error of the first file that is not a rank file.
    unusable: Option<RankFileError>,
    notes: Vec<String>,
    /// Whether every file is complete.
    complete: bool,
}

impl Survey {
    fn of(files: &[PathBuf]) -> Result<Self, MergeError> {
        let mut survey = Self {
            seen: Vec::new(),
            longest_ns: 1,
            unusable: None,
            notes: Vec::new(),
            complete: true,
        };
        for path in files {
            match RankFile::open(path) {
                Ok(file) => survey.add(path, file)?,
                // A rank was killed while it began its file; the messages of the others are still used.
                Err(error) => {
                    survey.complete = false;
                    let note = format!("a rank's file is left out: {error}");
                    survey.notes.push(note);
                    survey.unusable = survey.unusable.or(Some(error));
                }
            }
        }
        Ok(survey)
    }

    fn add(&mut self, path: &Path, mut file: RankFile) -> Result<(), MergeError> {
        let (mut first_ns, mut last_ns, mut lost) = (u64::MAX, 0, 0);
        while let Some(block) = file.next_block()? {
            match block {
                Block::Slice {
                    start_ns, end_ns, ..
                } => {
                    first_ns = first_ns.min(start_ns);
                    last_ns = last_ns.max(end_ns);
                    self.longest_ns = self.longest_ns.max(end_ns - start_ns);
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
        self.complete &= problem.is_none();
        self.notes.extend(problem);
        self.seen.push(Seen {
            path: path.to_owned(),
            header: file.header().clone(),
            first_ns,
            last_ns,
        });
        Ok(())
    }
}

/// Number of ranks of the world of these files.
fn world_size(seen: &[Seen]) -> Result<u32, MergeError> {
    let sizes = seen.iter().map(|s| {
        let known = s.header.world_size;
        known.unwrap_or(s.header.rank.saturating_add(1))
    });
    let size = sizes.max().ok_or(MergeError::NoRanks)?;
    let of_files = u32::try_from(seen.len() * RANKS_PER_FILE).unwrap_or(MAX_RANKS);
    let most = of_files.clamp(ALWAYS_ACCEPTED_RANKS, MAX_RANKS);
    match seen.iter().find(|s| size > most || s.header.rank >= size) {
        None => Ok(size),
        Some(s) => Err(MergeError::TooManyRanks {
            path: s.path.clone(),
            rank: s.header.rank,
            size,
            files: seen.len(),
            most,
        }),
    }
}

/// The second pass: ranks, and their messages by slice.
struct World {
    size: u32,
    threads: Vec<Thread>,
    sites: Vec<Option<RankSite>>,
    sums: CommSums,
    /// Length of a slice of `sums`.
    slice_ns: u64,
    /// End of the run.
    end: u64,
    /// Largest number of rows.
    rows: usize,
    /// Whether messages inside collectives are modelled.
    modelled: bool,
    /// Number and bytes of messages of ranks to themselves.
    to_self: (u64, u64),
}

impl World {
    fn new(size: u32, slice_ns: u64, end: u64, options: Options) -> Self {
        Self {
            size,
            threads: (0..size).map(thread).collect(),
            sites: vec![None; size as usize],
            sums: CommSums::default(),
            slice_ns,
            end,
            rows: options.rows,
            modelled: false,
            to_self: (0, 0),
        }
    }

    /// Adds a rank's file.
    fn add(&mut self, s: &Seen) -> Result<(), MergeError> {
        let rank = s.header.rank;
        let this = &mut self.threads[rank as usize];
        if this.pid == 0 {
            (this.pid, this.tid) = (s.header.pid, s.header.pid);
            this.start = s.first_ns.min(s.last_ns);
        }
        this.end = this.end.max(s.last_ns);
        self.sites[rank as usize] = Some(RankSite {
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
                if entry.peer >= self.size {
                    return Err(MergeError::Peer {
                        path: s.path.clone(),
                        rank,
                        peer: entry.peer,
                        size: self.size,
                    });
                }
                self.add_entry(rank, start_ns, &entry);
            }
            while self.sums.len() > self.rows && self.end > self.slice_ns {
                self.sums = std::mem::take(&mut self.sums).halved();
                self.slice_ns *= 2;
            }
        }
        Ok(())
    }

    fn add_entry(&mut self, rank: u32, start_ns: u64, entry: &Entry) {
        let (layer, src, dst) = match entry.kind {
            Kind::PointToPoint | Kind::Persistent | Kind::Put => (Layer::Message, rank, entry.peer),
            Kind::Get => (Layer::Message, entry.peer, rank),
            Kind::Collective | Kind::Started | Kind::Modelled => {
                (Layer::Collective, rank, entry.peer)
            }
            Kind::Operation => return,
        };
        self.modelled |= entry.kind == Kind::Modelled;
        // A rank's messages to itself move no data between places.
        if src == dst {
            self.to_self.0 = self.to_self.0.saturating_add(entry.events);
            self.to_self.1 = self.to_self.1.saturating_add(entry.bytes);
            return;
        }
        self.sums.add(CommRow {
            slice: SliceIdx((start_ns / self.slice_ns) as u32),
            src: ThreadIdx(src),
            dst: ThreadIdx(dst),
            layer,
            events: entry.events,
            bytes: entry.bytes,
        });
    }

    /// Notes about messages that are modelled or left out.
    fn omissions(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.modelled {
            notes.push(
                "collective messages are modelled: decomposed by the standard algorithm for their size, \
                 because this MPI library does not tell which messages it sends"
                    .to_owned(),
            );
        }
        let (messages, bytes) = self.to_self;
        if messages > 0 {
            notes.push(format!(
                "{messages} messages of ranks to themselves, {bytes} bytes together, are left out: they move no data between places"
            ));
        }
        notes
    }
}

/// The note about ranks without a file, if there are any.
fn missing(sites: &[Option<RankSite>]) -> Option<String> {
    let missing = sites.iter().filter(|site| site.is_none()).count();
    let first = sites.iter().position(Option::is_none)?;
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
    Some(format!(
        "{missing} of {} ranks wrote no file, rank {first} first; files came from {}{more}: do all hosts see the folder of \
         the output?",
        sites.len(),
        hosts.join(", ")
    ))
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
        role: ThreadRole::Rank,
        rank: Some(rank),
        ..Thread::new(ThreadPath::of_rank(rank))
    }
}
