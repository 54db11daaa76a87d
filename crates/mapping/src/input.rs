//! Input of a thread policy: tasks, machine and options.

use numaloc_model::TaskGroup;
use numaloc_topology::Topology;

use crate::distance::Distances;
use crate::error::MapError;
use crate::slots::{Slots, Spread};
use crate::tasks::{Direction, TaskGraph};

/// Returns whether a policy's time budget is used up. The caller has the clock, because policies read none.
pub type Expired<'a> = &'a (dyn Fn() -> bool + Sync);

/// One mapping problem: tasks, machine and options.
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
    /// Tasks with this communication on this machine; its direction is detected, see [`Direction::Auto`].
    #[must_use]
    pub fn new(comm: &numaloc_model::CommMatrix, topology: &'a Topology) -> Self {
        Self::of_graph(TaskGraph::new(comm, Direction::Auto), topology)
    }

    /// Tasks with communication of a known direction.
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

    /// Sets which PUs stay empty when there are fewer tasks than PUs.
    #[must_use]
    pub fn with_spread(mut self, spread: Spread) -> Self {
        self.spread = spread;
        self
    }

    /// Sets the seed of every random choice; the same seed gives the same mapping.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Makes anytime policies continue until `expired` returns true. Their results then depend on the machine's speed;
    /// without a budget every policy does a fixed amount of work and is reproducible.
    #[must_use]
    pub fn with_budget(mut self, expired: Expired<'a>) -> Self {
        self.expired = Some(expired);
        self
    }

    /// Number of tasks.
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

    /// Each task's load on memory, if known.
    #[must_use]
    pub fn load(&self) -> Option<&'a [f64]> {
        self.load
    }

    /// Groups of concurrent communication; empty if not known.
    #[must_use]
    pub fn groups(&self) -> &'a [TaskGroup] {
        self.groups
    }

    /// The user's choice about empty PUs.
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

    /// Capacities; `natural` is the policy's own choice, used if the user left it open.
    #[must_use]
    pub fn slots(&self, natural: Spread) -> Slots {
        let slots = |spread| Slots::new(self.topology, self.tasks(), spread);
        match (self.spread, natural) {
            (Spread::Auto, natural) => slots(natural),
            (Spread::Cores, Spread::Compact) => slots(Spread::Cores).first(self.tasks()),
            (Spread::Cores, Spread::Spread) => slots(Spread::Spread),
            (chosen, _) => slots(chosen),
        }
    }

    /// The loads to balance: the load vector, else each task's communication.
    #[must_use]
    pub fn task_loads(&self) -> Vec<f64> {
        match self.load {
            Some(load) => load.to_vec(),
            None => (0..self.tasks()).map(|t| self.graph.volume(t)).collect(),
        }
    }

    /// Checks that loads and groups fit the tasks.
    pub(crate) fn check(&self) -> Result<(), MapError> {
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
