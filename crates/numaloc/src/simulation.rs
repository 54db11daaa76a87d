//! Simulations of a recorded program, for the commands that compare placements by simulated times.
//!
//! | file | what |
//! |---|---|
//! | `loading` | the access traces of a profile, in the memory of the simulator |
//! | `planned` | threads on PUs and pages on nodes, from policies and plans |
//! | `running` | simulations in parallel, with progress |
//! | `schedule` | when the moves of a plan's schedule are due in the recorded clock |
//! | `saved` | finished simulations in a file |
//! | `sensitivity` | how much a comparison depends on the presets of the model |

use std::path::Path;

use numaloc_formats::access_trace::{AccessTrace, CacheSize};
use numaloc_model::{LogicalPu, Profile};
use numaloc_sim::{Machine, Moves, Pages, Parameters, Threads};
use numaloc_topology::Topology;

use crate::access_trace::{incomplete, open};
use crate::error::CliError;
use crate::ui::Ui;

pub mod loading;
pub mod pages;
pub mod planned;
pub mod running;
pub mod saved;
pub mod schedule;
pub mod sensitivity;

/// A machine to simulate.
#[derive(Clone)]
pub struct Target {
    pub topology: Topology,
    pub machine: Machine,
}

impl Target {
    /// The simulator's model of the machine that was given as `name`.
    ///
    /// # Errors
    /// The machine has no hardware figures, or none that can be simulated.
    pub fn new(name: &str, topology: Topology, parameters: Parameters) -> Result<Self, CliError> {
        let machine = Machine::new(&topology, parameters)
            .map_err(|error| CliError::usage(format!("cannot simulate on {name}: {error}")))?;
        Ok(Self { topology, machine })
    }
}

/// Threads and pages in their places on a machine.
pub struct Case {
    /// Index of the machine.
    pub target: usize,
    pub threads: String,
    pub pages: String,
    pub mapped: Mapped,
    pub homes: Pages,
    /// Threads and pages that move while the program runs.
    pub moves: Vec<Moves>,
}

/// How threads are mapped.
#[derive(Clone, Debug)]
pub enum Mapped {
    Pinned(Vec<LogicalPu>),
    /// By the operating system, with random choices from a seed.
    Os {
        seed: u64,
    },
}

impl Mapped {
    pub fn threads(&self) -> Threads<'_> {
        match self {
            Self::Pinned(pus) => Threads::Pinned(pus),
            Self::Os { seed } => Threads::Os { seed: *seed },
        }
    }
}

/// Opens the access traces of the profile at `path`, and remarks on what they lack for `targets`; returns the size of
/// the private caches with which they were recorded, too.
///
/// # Errors
/// There is no trace, it cannot be read, or the program's processes wait for messages that are not in it.
pub fn recorded(
    path: &Path,
    profile: &Profile,
    targets: &[Target],
    ui: &Ui,
) -> Result<(Vec<AccessTrace>, CacheSize), CliError> {
    let traces = open(path)?;
    let filter = filtered(path, &traces, profile, targets, ui)?;
    Ok((traces, filter))
}

/// [`recorded`] for the traces of the profile at `path` that are open already.
///
/// # Errors
/// The program's processes wait for messages that are not in them.
pub fn filtered(
    path: &Path,
    traces: &[AccessTrace],
    profile: &Profile,
    targets: &[Target],
    ui: &Ui,
) -> Result<CacheSize, CliError> {
    if profile.threads().iter().any(|thread| thread.rank.is_some()) {
        return Err(CliError::tool(format!(
            "cannot simulate {}: messages between ranks are not in the access trace, so it is unknown which rank waits for which",
            path.display()
        )));
    }
    traces
        .iter()
        .filter_map(incomplete)
        .for_each(|line| ui.remark(line));
    if let Some(windows) = traces[0].head.windows {
        ui.remark(format!(
            "the trace has all requests of {} % of the run, of the rest only their number: times and counts are extrapolated",
            f64::from(windows.share_ppm) / 1e4
        ));
    }
    let filter = traces[0].head.l2;
    remark_on_small_caches(filter, targets, ui);
    Ok(filter)
}

/// Reports machines with smaller private caches than the recorder's: accesses that hit the recorder's caches are not in
/// the trace.
fn remark_on_small_caches(filter: CacheSize, targets: &[Target], ui: &Ui) {
    for target in targets {
        let (ours, ways) = (target.machine.private_bytes, target.machine.private.ways);
        if filter.bytes > ours {
            ui.remark(format!(
                "{} has private caches of {} KiB, the trace was recorded with {filter}: misses between the two are not in it; record with --trace-l2 {}K/{ways}",
                target.machine.name,
                ours >> 10,
                ours >> 10,
            ));
        }
    }
}
