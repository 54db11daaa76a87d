//! Between the passes: which world is merged, in which slices; and the profile from its sums.

use std::collections::BTreeMap;

use numaloc_identity::ThreadPath;
use numaloc_model::profile::{Clock, Meta, ProfileBuilder, Slice, Thread, ThreadRole};

use super::sums::{Limits, Sums};
use super::survey::{Seen, Survey};
use super::times::Times;
use super::{
    ALWAYS_ACCEPTED_RANKS, MAX_RANKS, MergeError, Merged, Options, RANKS_PER_FILE, RankSite,
};
use crate::rank_file::Source;

/// What the second pass sums, and what is known of the run before it.
pub(super) struct Plan {
    /// The files of the world, by rank.
    pub seen: Vec<Seen>,
    /// Ranks of the world.
    pub size: u32,
    /// Length of a slice before rows are counted.
    pub slice_ns: u64,
    /// End of the run.
    pub end: u64,
    pub notes: Vec<String>,
    /// Whether every file is complete.
    pub complete: bool,
}

impl Plan {
    pub fn of(mut survey: Survey, options: Options) -> Result<Self, MergeError> {
        if let (true, Some(error)) = (survey.seen.is_empty(), survey.unusable) {
            return Err(error);
        }
        let seen = main_world(survey.seen, &mut survey.notes)?;
        let size = world_size(&seen)?;
        let end = seen.iter().map(|s| s.last_ns).max().unwrap_or(0).max(1);
        let mut slice_ns = survey.longest_ns;
        while end.div_ceil(slice_ns) > options.slices.max(1) as u64 {
            slice_ns *= 2;
        }
        Ok(Self {
            seen,
            size,
            slice_ns,
            end,
            notes: survey.notes,
            complete: survey.complete,
        })
    }

    pub fn limits(&self, options: Options) -> Limits {
        Limits {
            size: self.size,
            end: self.end,
            rows: options.rows,
        }
    }

    /// The profile of these sums.
    pub fn profile(
        self,
        sums: Sums,
        command: &[String],
        options: Options,
    ) -> Result<Merged, MergeError> {
        let (threads, sites) = self.ranks();
        let Self {
            seen,
            size,
            end,
            mut notes,
            mut complete,
            ..
        } = self;
        notes.extend(sums.omissions());
        if let Some(note) = missing(&sites) {
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
        tables.threads = threads;
        tables.slices = Slice::even(sums.slice_ns, end).collect();
        tables.communication = sums.rows.into_rows().collect();
        let profile = tables.build()?;
        Ok(Merged {
            profile,
            sites,
            times: Times::default(),
        })
    }

    /// The threads of the profile, and where they ran.
    fn ranks(&self) -> (Vec<Thread>, Vec<Option<RankSite>>) {
        let mut threads: Vec<Thread> = (0..self.size).map(thread).collect();
        let mut sites = vec![None; self.size as usize];
        for s in &self.seen {
            let rank = s.header.rank as usize;
            let this = &mut threads[rank];
            if this.pid == 0 {
                (this.pid, this.tid) = (s.header.pid, s.header.pid);
                this.start = s.first_ns.min(s.last_ns);
            }
            this.end = this.end.max(s.last_ns);
            sites[rank] = Some(RankSite {
                host: s.header.host.clone(),
                affinity: s.header.affinity.clone(),
            });
        }
        (threads, sites)
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
