//! Run-time settings, read from environment variables (`numaloc tasks run` sets them).

use std::path::PathBuf;

pub use numaloc_task_plan::Stealing;
use numaloc_topology::Topology;

use crate::error::ConfigError;
use crate::memory::{self, Allocator};

/// Whether this build found oneTBB, and so has the scheduler `tbb`.
pub const HAS_TBB: bool = cfg!(numaloc_tbb);

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

/// All settings of a run.
#[derive(Clone, Debug)]
pub struct Config {
    /// Scheduler.
    pub scheduler: SchedulerKind,
    /// Allocator of data blocks.
    pub allocator: Allocator,
    /// Stealing; `None`: `Any` without a plan, what the plan says with one.
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
    /// [`ConfigError`] has the variable's name, its value and the values allowed.
    pub fn from_variables(get: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let variables = Variables(get);
        let machine = variables.text("MACHINE");
        let machine = numaloc_topology::resolve(machine.as_deref().unwrap_or("this"))?;
        let mut config = Self::on(machine);
        variables.choose("SCHEDULER", &mut config.scheduler, &SCHEDULERS)?;
        variables.choose("ALLOCATOR", &mut config.allocator, &ALLOCATORS)?;
        if config.allocator == Allocator::Tbb && !memory::HAS_TBB {
            return Err(ConfigError::NoTbbAllocator);
        }
        variables.choose("STEAL", &mut config.stealing, &STEALING)?;
        if let Some(workers) = variables.number("WORKERS")? {
            if workers == 0 || workers > 4096 {
                return Err(wrong("WORKERS", &workers.to_string(), "1 to 4096"));
            }
            config.workers = Some(workers as usize);
        }
        if let Some(seed) = variables.number("SEED")? {
            config.seed = seed;
        }
        if let Some(replays) = variables.number("REPLAYS")? {
            config.experiments.per_class = u32::try_from(replays).unwrap_or(u32::MAX);
        }
        variables.choose("DESIGN", &mut config.experiments.design, &DESIGNS)?;
        if let Some(budget) = variables.number("BUDGET")? {
            config.experiments.budget_seconds = budget;
        }
        variables.choose("PROGRESS", &mut config.experiments.progress, &FLAG)?;
        variables.choose("THREADS", &mut config.threads, &FLAG)?;
        variables.choose("CHECKED", &mut config.checked, &FLAG)?;
        variables.choose("HINTS", &mut config.hints, &FLAG)?;
        config.plan = variables.text("PLAN").map(PathBuf::from);
        config.profile = variables.text("PROFILE").map(PathBuf::from);
        config.stats = variables.text("STATS").map(PathBuf::from);
        if config.profile.is_some() {
            config.scheduler = SchedulerKind::Single;
        }
        Ok(config)
    }
}

/// The values that a variable may have, with what they stand for, and the same in words.
struct Choices<T: 'static> {
    values: &'static [(&'static str, T)],
    expected: &'static str,
}

const SCHEDULERS: Choices<SchedulerKind> = Choices {
    values: &[
        ("numa", SchedulerKind::Numa),
        ("tbb", SchedulerKind::Tbb),
        ("single", SchedulerKind::Single),
    ],
    expected: "numa, tbb or single",
};
const ALLOCATORS: Choices<Allocator> = Choices {
    values: &[
        ("numa", Allocator::Numa),
        ("system", Allocator::System),
        ("tbb", Allocator::Tbb),
    ],
    expected: "numa, system or tbb",
};
const STEALING: Choices<Option<Stealing>> = Choices {
    values: &[
        ("node", Some(Stealing::Node)),
        ("surplus", Some(Stealing::Surplus)),
        ("any", Some(Stealing::Any)),
    ],
    expected: "node, surplus or any",
};
const DESIGNS: Choices<Design> = Choices {
    values: &[
        ("full", Design::Full),
        ("near", Design::Near),
        ("far", Design::Far),
    ],
    expected: "full, near or far",
};
const FLAG: Choices<bool> = Choices {
    values: &[("0", false), ("1", true)],
    expected: "0 or 1",
};

/// The variables of the environment whose names begin with `NUMALOC_OCR_`.
struct Variables<G>(G);

impl<G: Fn(&str) -> Option<String>> Variables<G> {
    /// The text of a variable; `None` if it is not set or empty.
    fn text(&self, name: &str) -> Option<String> {
        (self.0)(&format!("NUMALOC_OCR_{name}")).filter(|text| !text.is_empty())
    }

    fn number(&self, name: &'static str) -> Result<Option<u64>, ConfigError> {
        let text = self.text(name);
        text.map(|text| {
            text.parse()
                .map_err(|_| wrong(name, &text, "a whole number"))
        })
        .transpose()
    }

    /// Sets `to` to what the variable's value stands for, if the variable is set.
    fn choose<T: Copy>(
        &self,
        name: &'static str,
        to: &mut T,
        choices: &Choices<T>,
    ) -> Result<(), ConfigError> {
        let Some(text) = self.text(name) else {
            return Ok(());
        };
        let found = choices.values.iter().find(|(value, _)| *value == text);
        let &(_, value) = found.ok_or_else(|| wrong(name, &text, choices.expected))?;
        *to = value;
        Ok(())
    }
}

fn wrong(name: &'static str, value: &str, expected: &'static str) -> ConfigError {
    ConfigError::Value {
        name,
        value: value.to_owned(),
        expected,
    }
}
