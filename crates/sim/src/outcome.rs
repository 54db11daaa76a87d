//! The result of a simulation. Times in picoseconds, energy in joules.

use serde::{Deserialize, Serialize};

use crate::machine::{LinkModel, Machine};
pub use crate::timeline::Timeline;

/// A node's memory controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeFigures {
    /// Pages on the node at the end.
    pub pages: u64,
    /// Lines read from its memory.
    pub lines_read: u64,
    /// Lines written back to its memory.
    pub lines_written: u64,
    /// Time spent serving requests.
    pub busy: u64,
    /// Sum of the times that requests waited in its queue.
    pub waited: u64,
    /// Longest wait.
    pub longest_wait: u64,
    /// Time spent serving requests, over the run.
    pub busy_over_time: Timeline,
    /// Waits of the requests served in each interval, over the run.
    pub wait_over_time: Timeline,
}

impl NodeFigures {
    /// Requests to its memory.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.lines_read + self.lines_written
    }

    /// Mean wait of a request; 0 without requests.
    #[must_use]
    pub fn mean_wait(&self) -> f64 {
        self.waited as f64 / self.lines().max(1) as f64
    }
}

/// A last-level cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupFigures {
    /// Requests served there, or by another core below it.
    pub hits: u64,
    /// Requests that missed.
    pub misses: u64,
}

/// A directed link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkFigures {
    /// Logical node it leaves.
    pub from: usize,
    /// Logical node it enters.
    pub to: usize,
    /// Bytes carried.
    pub bytes: u64,
    /// Time spent on messages.
    pub busy: u64,
    /// Sum of the times that messages waited for it.
    pub waited: u64,
    /// Bytes, over the run.
    pub over_time: Timeline,
}

impl LinkFigures {
    pub(crate) fn of(link: &LinkModel) -> Self {
        Self {
            from: link.from,
            to: link.to,
            bytes: 0,
            busy: 0,
            waited: 0,
            over_time: Timeline::default(),
        }
    }
}

/// Walks through page tables, of all cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Walks {
    /// Their number.
    pub count: u64,
    /// Sum of their times, with the waits for a walker.
    pub time: u64,
}

impl Walks {
    /// Mean time of a walk; 0 without walks.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.time as f64 / self.count.max(1) as f64
    }
}

/// The predicted figures of a program on a machine, with a placement of threads and pages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// From the start to the end of the last thread.
    pub time: u64,
    /// From the first creation of a thread to the end of the last created one: without what the first thread does alone
    /// before and afterwards. 0 if no thread is created.
    pub parallel: u64,
    /// End of each thread.
    pub thread_ends: Vec<u64>,
    /// By logical node.
    pub nodes: Vec<NodeFigures>,
    /// By last-level cache.
    pub groups: Vec<GroupFigures>,
    /// By link, as in the machine.
    pub links: Vec<LinkFigures>,
    /// Lines read from and written back to DRAM, by the node of the core and that of the memory: `from * nodes + to`.
    pub lines_by_node_pair: Vec<u64>,
    /// Requests below private caches, whichever cache or memory answers them, by the node of the core and that of the
    /// page: `from * nodes + to`.
    pub requests_by_node_pair: Vec<u64>,
    /// Accesses of all threads.
    pub accesses: u64,
    /// Records that hit in a private cache of the machine although they missed in the recorder's.
    pub private_hits: u64,
    /// Copies of lines invalidated by other cores' writes.
    pub invalidations: u64,
    /// Written lines transferred between cores below one last-level cache.
    pub transfers_within: u64,
    /// Written lines transferred between last-level caches.
    pub transfers_between: u64,
    /// Number of times a PU switched to a waiting thread.
    pub switches: u64,
    /// Number of times a thread continued on another PU.
    pub thread_moves: u64,
    /// Faults on pages marked by the page policy.
    pub page_faults: u64,
    /// Pages that moved to another node.
    pub page_moves: u64,
    /// Page walks; `None` if translation takes no time.
    pub walks: Option<Walks>,
    /// How the time was extrapolated; `None` if all records were simulated in detail.
    pub sampled: Option<Sampled>,
}

/// What a sampled simulation was extrapolated from.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sampled {
    /// Records simulated in detail.
    pub detailed: u64,
    /// Records of which only the effect on caches was simulated.
    pub warmed: u64,
    /// All records of memory requests.
    pub records: u64,
    /// Windows that were compared with what had been extrapolated for them.
    pub windows: u64,
    /// Estimated error as a share of the time, from the mean and 1.96 standard errors of these comparisons; 1 with
    /// fewer than two windows. Errors that all windows share are not in it.
    pub error: f64,
}

impl Outcome {
    /// Lines between a node's cores and another node's memory, in percent of all lines to and from DRAM; `None` without
    /// DRAM traffic.
    #[must_use]
    pub fn remote_percent(&self) -> Option<f64> {
        let nodes = self.nodes.len();
        let all: u64 = self.lines_by_node_pair.iter().sum();
        let local: u64 = (0..nodes)
            .map(|node| self.lines_by_node_pair[node * nodes + node])
            .sum();
        (all > 0).then(|| 100.0 * (all - local) as f64 / all as f64)
    }

    /// Requests below private caches for pages of another node, in percent; `None` without requests.
    #[must_use]
    pub fn remote_requests_percent(&self) -> Option<f64> {
        let nodes = self.nodes.len();
        let all: u64 = self.requests_by_node_pair.iter().sum();
        let local: u64 = (0..nodes)
            .map(|node| self.requests_by_node_pair[node * nodes + node])
            .sum();
        (all > 0).then(|| 100.0 * (all - local) as f64 / all as f64)
    }

    /// Bytes over all links.
    #[must_use]
    pub fn link_bytes(&self) -> u64 {
        self.links.iter().map(|link| link.bytes).sum()
    }

    /// Mean wait in a controller's queue, over all requests.
    #[must_use]
    pub fn mean_wait(&self) -> f64 {
        let waited: u64 = self.nodes.iter().map(|node| node.waited).sum();
        let lines: u64 = self.nodes.iter().map(NodeFigures::lines).sum();
        waited as f64 / lines.max(1) as f64
    }

    /// Misses of all last-level caches.
    #[must_use]
    pub fn llc_misses(&self) -> u64 {
        self.groups.iter().map(|group| group.misses).sum()
    }

    /// Misses of the last-level caches of each node's cores, by logical node.
    #[must_use]
    pub fn llc_misses_by_node(&self, machine: &Machine) -> Vec<u64> {
        let mut misses = vec![0; machine.nodes];
        for (group, figures) in self.groups.iter().enumerate() {
            misses[machine.node_of_group(group) as usize] += figures.misses;
        }
        misses
    }

    /// Estimated energy, with the constants of the machine's [`Energy`](crate::machine::Energy).
    #[must_use]
    pub fn energy(&self, machine: &Machine) -> EnergyParts {
        let constants = &machine.parameters.energy;
        let lines: u64 = self.nodes.iter().map(NodeFigures::lines).sum();
        let requests: u64 = self
            .groups
            .iter()
            .map(|group| group.hits + group.misses)
            .sum();
        let watts = (0..self.nodes.len()).map(|node| {
            if machine.core_node.contains(&(node as u32)) {
                constants.static_w
            } else {
                constants.memory_node_w
            }
        });
        EnergyParts {
            static_j: watts.sum::<f64>() * self.time as f64 * 1e-12,
            dram_j: constants.dram_line_nj * 1e-9 * lines as f64,
            llc_j: constants.llc_access_nj * 1e-9 * requests as f64,
            links_j: constants.link_byte_pj * 1e-12 * self.link_bytes() as f64,
        }
    }
}

/// Estimated energy in joules.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EnergyParts {
    /// Of the nodes over the run, whatever they do.
    pub static_j: f64,
    /// Of lines read from and written to DRAM.
    pub dram_j: f64,
    /// Of requests to last-level caches.
    pub llc_j: f64,
    /// Of bytes on links.
    pub links_j: f64,
}

impl EnergyParts {
    /// Sum of the parts.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.static_j + self.dram_j + self.llc_j + self.links_j
    }
}
