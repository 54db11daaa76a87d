//! What every thread policy is given, what it gives back, and where policies are listed.

use numaloc_model::{LogicalPu, Mapping, TaskGroup};
use numaloc_topology::Topology;

use crate::distance::Distances;
use crate::slots::{Slots, Spread};
use crate::tasks::{Direction, TaskGraph};

/// Says whether a policy's time is up; the clock lives with the caller, because policies read none.
pub type Expired<'a> = &'a (dyn Fn() -> bool + Sync);

/// One mapping problem: tasks, machine, and what matters.
#[derive(Clone)]
pub struct MapInput<'a> {
    graph: TaskGraph,
    topology: &'a Topology,
    distances: Distances<'a>,
    load: Option<&'a [f64]>,
    groups: &'a [TaskGroup],
    spread: Spread,
    seed: u64,
    expired: Option<Expired<'a>>,
}

impl<'a> MapInput<'a> {
    /// Tasks with this communication on this machine; see [`Direction::Auto`].
    #[must_use]
    pub fn new(comm: &numaloc_model::CommMatrix, topology: &'a Topology) -> Self {
        Self::of_graph(TaskGraph::new(comm, Direction::Auto), topology)
    }

    /// Tasks with this communication, its direction known.
    #[must_use]
    pub fn directed(
        comm: &numaloc_model::CommMatrix,
        direction: Direction,
        topology: &'a Topology,
    ) -> Self {
        Self::of_graph(TaskGraph::new(comm, direction), topology)
    }

    /// Tasks with an undirected communication graph.
    #[must_use]
    pub fn of_graph(graph: TaskGraph, topology: &'a Topology) -> Self {
        Self {
            graph,
            topology,
            distances: Distances::new(topology),
            load: None,
            groups: &[],
            spread: Spread::Auto,
            seed: 1,
            expired: None,
        }
    }

    /// Adds each task's load on memory (any unit, at least 0), by task.
    #[must_use]
    pub fn with_load(mut self, load: Option<&'a [f64]>) -> Self {
        self.load = load;
        self
    }

    /// Adds groups of concurrent communication (DeLoc).
    #[must_use]
    pub fn with_groups(mut self, groups: &'a [TaskGroup]) -> Self {
        self.groups = groups;
        self
    }

    /// Says which PUs stay empty when there are fewer tasks than PUs.
    #[must_use]
    pub fn with_spread(mut self, spread: Spread) -> Self {
        self.spread = spread;
        self
    }

    /// Seeds every random choice; same seed, same mapping.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Makes anytime policies go on until `expired` says stop. Their results then depend on the
    /// machine's speed; without it every policy does a fixed amount of work and repeats exactly.
    #[must_use]
    pub fn with_budget(mut self, expired: Expired<'a>) -> Self {
        self.expired = Some(expired);
        self
    }

    /// How many tasks.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.graph.tasks()
    }

    /// Undirected communication.
    #[must_use]
    pub fn graph(&self) -> &TaskGraph {
        &self.graph
    }

    /// The machine.
    #[must_use]
    pub fn topology(&self) -> &'a Topology {
        self.topology
    }

    /// Distances of its PUs.
    #[must_use]
    pub fn distances(&self) -> &Distances<'a> {
        &self.distances
    }

    /// Each task's load on memory, where known.
    #[must_use]
    pub fn load(&self) -> Option<&'a [f64]> {
        self.load
    }

    /// Groups of concurrent communication; empty where not known.
    #[must_use]
    pub fn groups(&self) -> &'a [TaskGroup] {
        self.groups
    }

    /// What the user said about empty PUs.
    #[must_use]
    pub fn spread(&self) -> Spread {
        self.spread
    }

    /// Seed of random choices.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The caller's stop signal, if it set a budget.
    #[must_use]
    pub fn expired(&self) -> Option<Expired<'a>> {
        self.expired
    }

    /// Capacities; `natural` is the policy's own choice where the user left it open.
    #[must_use]
    pub fn slots(&self, natural: Spread) -> Slots {
        let spread = if self.spread == Spread::Auto {
            natural
        } else {
            self.spread
        };
        Slots::new(self.topology, self.tasks(), spread)
    }

    /// The load that balance is judged by: the load vector, else each task's communication.
    #[must_use]
    pub fn task_loads(&self) -> Vec<f64> {
        match self.load {
            Some(load) => load.to_vec(),
            None => (0..self.tasks()).map(|t| self.graph.volume(t)).collect(),
        }
    }

    fn check(&self) -> Result<(), MapError> {
        if let Some(load) = self.load {
            if load.len() != self.tasks() {
                return Err(MapError::LoadLength {
                    found: load.len(),
                    tasks: self.tasks(),
                });
            }
            if let Some(task) = load.iter().position(|l| !l.is_finite() || *l < 0.0) {
                return Err(MapError::NotALoad {
                    task,
                    found: load[task],
                });
            }
        }
        for (group, pairs) in self.groups.iter().enumerate() {
            for pair in &pairs.pairs {
                let task = pair.a.index().max(pair.b.index());
                if task >= self.tasks() {
                    return Err(MapError::GroupTask {
                        group,
                        task,
                        tasks: self.tasks(),
                    });
                }
            }
        }
        Ok(())
    }
}

/// A policy's answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Mapped {
    /// Task to PU.
    pub mapping: Mapping,
    /// Tasks that had to be moved because the policy itself overloaded a PU.
    pub repaired: usize,
    /// What the policy has to say about its work, as `(name, value)`: passes, moves, groups.
    pub diagnostics: Vec<(&'static str, f64)>,
    /// What a person should know of the choice, a sentence each: what was given up, and what for.
    pub remarks: Vec<String>,
}

impl Mapped {
    /// A mapping that needed no repair and has nothing to tell.
    #[must_use]
    pub fn plain(pu: Vec<LogicalPu>) -> Self {
        Self {
            mapping: Mapping { pu },
            repaired: 0,
            diagnostics: Vec::new(),
            remarks: Vec::new(),
        }
    }
}

/// Why there is no mapping.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// The load vector does not fit the matrix.
    #[error("the load vector has {found} values, the matrix has {tasks} tasks")]
    LoadLength {
        /// Values given.
        found: usize,
        /// Tasks of the matrix.
        tasks: usize,
    },
    /// A load is negative, infinite or not a number.
    #[error("the load of task {task} is {found}, expected a finite number of at least 0")]
    NotALoad {
        /// Whose load.
        task: usize,
        /// What was given.
        found: f64,
    },
    /// A concurrency group names a task the matrix does not have.
    #[error("concurrency group {group} names task {task}, the matrix has {tasks} tasks")]
    GroupTask {
        /// Which group.
        group: usize,
        /// The task it names.
        task: usize,
        /// Tasks of the matrix.
        tasks: usize,
    },
    /// A library the policy stands on refused.
    #[error("policy {policy}: {library} failed in {call}")]
    Library {
        /// The policy.
        policy: &'static str,
        /// The library.
        library: &'static str,
        /// Which call.
        call: &'static str,
    },
    /// The policy cannot handle a problem of this size.
    #[error("policy {policy} takes at most {limit} tasks, the matrix has {tasks}")]
    TooLarge {
        /// The policy.
        policy: &'static str,
        /// Its limit.
        limit: usize,
        /// Tasks of the matrix.
        tasks: usize,
    },
}

/// A way to choose PUs for tasks. Deterministic for an input and its seed.
pub trait MappingPolicy: Send + Sync {
    /// Name on the command line, in plans and in reports.
    fn name(&self) -> &'static str;

    /// One line for people: what it does, whose it is.
    fn summary(&self) -> &'static str;

    /// The algorithm itself. Callers use [`map`], which checks what goes in and comes out.
    ///
    /// # Errors
    /// [`MapError`] where a library fails or the problem is too large for the policy.
    fn place(&self, input: &MapInput) -> Result<Mapped, MapError>;
}

/// Maps with a policy, after checking the input.
///
/// # Errors
/// [`MapError`] for loads or groups that do not fit the tasks, and what the policy reports.
///
/// # Panics
/// If the policy breaks a promise: a task without PU, or a PU above ceil(tasks / PUs).
pub fn map(policy: &dyn MappingPolicy, input: &MapInput) -> Result<Mapped, MapError> {
    input.check()?;
    let mapped = policy.place(input)?;
    if let Err(broken) = crate::evaluate::check_mapping(input, &mapped.mapping) {
        panic!("policy {} broke its promise: {broken}", policy.name());
    }
    Ok(mapped)
}
