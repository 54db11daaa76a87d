//! Run-time settings, read from environment variables (`numaloc tasks run` sets them).

use std::path::PathBuf;

use numaloc_topology::Topology;

use crate::memory::{Allocator, HAS_TBB};

/// The scheduler to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedulerKind {
    /// Work stealing inside NUMA nodes, an inbox per node.
    Numa,
    /// oneTBB, which does not know about nodes.
    Tbb,
    /// One thread, oldest ready task first: the same order in every run.
    Single,
}

/// Which workers may steal tasks from another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stealing {
    /// None: stealing stays inside a node.
    Node,
    /// Workers whose own node has no work.
    Any,
}

/// All settings of a run.
#[derive(Clone, Debug)]
pub struct Config {
    /// Scheduler.
    pub scheduler: SchedulerKind,
    /// Allocator of data blocks.
    pub allocator: Allocator,
    /// Stealing; `None`: `Any` without a plan, `Node` with one.
    pub stealing: Option<Stealing>,
    /// Workers; `None`: one for each PU.
    pub workers: Option<usize>,
    /// The machine.
    pub machine: Topology,
    /// Run on threads even if the described machine is not this one; nodes are then only labels.
    pub threads: bool,
    /// Report errors of the program, and tasks that never ran.
    pub checked: bool,
    /// Whether the program's affinity hints count.
    pub hints: bool,
    /// Folder of a plan.
    pub plan: Option<PathBuf>,
    /// Folder to write a profile to.
    pub profile: Option<PathBuf>,
    /// How a profiling run measures.
    pub experiments: Experiments,
    /// File for statistics (JSON).
    pub stats: Option<PathBuf>,
    /// Seed of all random choices.
    pub seed: u64,
}

/// Where the data blocks of replayed tasks are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Design {
    /// Near and far, in combinations that separate the effects of the slots.
    Full,
    /// All near. Like `Far`, for checking the cost of near and far memory with other tools.
    Near,
    /// All far.
    Far,
}

/// How a profiling run measures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Experiments {
    /// Which placements replays use.
    pub design: Design,
    /// Replays per class at most; 0 records the structure only.
    pub per_class: u32,
    /// A class is measured well enough when the confidence interval's half width is below this share of the mean.
    pub precision: f64,
    /// Time limit in seconds for all experiments; the run continues without them afterwards.
    pub budget_seconds: u64,
    /// Blocks larger than this many bytes are not copied: their tasks are not replayed.
    pub largest_bytes: u64,
    /// Show progress on stderr.
    pub progress: bool,
}

impl Default for Experiments {
    fn default() -> Self {
        Self {
            design: Design::Full,
            per_class: 32,
            precision: 0.02,
            budget_seconds: 30,
            largest_bytes: 1 << 30,
            progress: false,
        }
    }
}

impl Config {
    /// The default settings on a machine.
    #[must_use]
    pub fn on(machine: Topology) -> Self {
        Self {
            scheduler: SchedulerKind::Numa,
            allocator: Allocator::Numa,
            stealing: None,
            workers: None,
            machine,
            threads: false,
            checked: false,
            hints: true,
            plan: None,
            profile: None,
            experiments: Experiments::default(),
            stats: None,
            seed: 1,
        }
    }

    /// Reads the settings through `get` (variable name to value).
    ///
    /// # Errors
    /// A message with the variable's name, its value and the values allowed.
    pub fn from_variables(get: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let get = |name: &str| get(&format!("NUMALOC_OCR_{name}")).filter(|text| !text.is_empty());
        let machine = numaloc_topology::resolve(get("MACHINE").as_deref().unwrap_or("this"))
            .map_err(|error| format!("NUMALOC_OCR_MACHINE: {error}"))?;
        let mut config = Self::on(machine);
        let wrong = |name: &str, text: &str, expected: &str| {
            format!("NUMALOC_OCR_{name} is {text:?}; expected {expected}")
        };
        if let Some(text) = get("SCHEDULER") {
            config.scheduler = match text.as_str() {
                "numa" => SchedulerKind::Numa,
                "tbb" => SchedulerKind::Tbb,
                "single" => SchedulerKind::Single,
                _ => return Err(wrong("SCHEDULER", &text, "numa, tbb or single")),
            };
        }
        if let Some(text) = get("ALLOCATOR") {
            config.allocator = match text.as_str() {
                "numa" => Allocator::Numa,
                "system" => Allocator::System,
                "tbb" if !HAS_TBB => {
                    return Err(
                        "this build has no allocator `tbb`: install libtbb-dev and build again"
                            .to_owned(),
                    );
                }
                "tbb" => Allocator::Tbb,
                _ => return Err(wrong("ALLOCATOR", &text, "numa, system or tbb")),
            };
        }
        if let Some(text) = get("STEAL") {
            config.stealing = Some(match text.as_str() {
                "node" => Stealing::Node,
                "any" => Stealing::Any,
                _ => return Err(wrong("STEAL", &text, "node or any")),
            });
        }
        let number = |name: &str| {
            get(name)
                .map(|text| {
                    text.parse::<u64>()
                        .map_err(|_| wrong(name, &text, "a whole number"))
                })
                .transpose()
        };
        if let Some(workers) = number("WORKERS")? {
            if workers == 0 || workers > 4096 {
                return Err(wrong("WORKERS", &workers.to_string(), "1 to 4096"));
            }
            config.workers = Some(workers as usize);
        }
        if let Some(seed) = number("SEED")? {
            config.seed = seed;
        }
        if let Some(replays) = number("REPLAYS")? {
            config.experiments.per_class = u32::try_from(replays).unwrap_or(u32::MAX);
        }
        if let Some(text) = get("DESIGN") {
            config.experiments.design = match text.as_str() {
                "full" => Design::Full,
                "near" => Design::Near,
                "far" => Design::Far,
                _ => return Err(wrong("DESIGN", &text, "full, near or far")),
            };
        }
        if let Some(budget) = number("BUDGET")? {
            config.experiments.budget_seconds = budget;
        }
        let flag = |name: &str, default: bool| match get(name).as_deref() {
            None => Ok(default),
            Some("0") => Ok(false),
            Some("1") => Ok(true),
            Some(text) => Err(wrong(name, text, "0 or 1")),
        };
        config.experiments.progress = flag("PROGRESS", false)?;
        config.threads = flag("THREADS", config.threads)?;
        config.checked = flag("CHECKED", config.checked)?;
        config.hints = flag("HINTS", config.hints)?;
        config.plan = get("PLAN").map(PathBuf::from);
        config.profile = get("PROFILE").map(PathBuf::from);
        config.stats = get("STATS").map(PathBuf::from);
        if config.profile.is_some() {
            config.scheduler = SchedulerKind::Single;
        }
        Ok(config)
    }
}
