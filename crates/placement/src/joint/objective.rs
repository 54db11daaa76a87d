//! The objective that the joint policy minimises, in seconds of an idealised run:
//!
//! ```text
//! J = latency + controller + link
//! latency    = (sum over accesses of l(n_t, m_p) + sum over communication of l(pu_i, pu_j)) / (P in_flight)
//! controller = bytes of the busiest memory controller / its bandwidth
//! link       = bytes of the busiest link / its bandwidth
//! ```
//!
//! `l` is the local memory latency times distance over local distance. Lines flow from a page's node to the accessing
//! thread's node, and from the writing thread's node to the reading one's, over the machine's links by the fewest hops
//! (ties: the lower link). Accesses are the program's; only [`Weights::memory_share`] of them leave the private caches.
//! Latency, bandwidths and links come from the machine description; without one, from [`Weights::default`] and a link
//! between each two nodes.
//!
//! `P = (sum of w_pu)^2 / sum of w_pu^2`, with the accesses and communication `w_pu` of the threads on a PU, is the
//! number of PUs that work at once: k for k equally busy ones; threads on the same PU wait one after the other. A PU
//! whose sibling works, too, is slower: each pair of siblings adds `2 (SMT - 1) w_a w_b` to the sum of squares, so that
//! k equally busy pairs count as `2 k / SMT` ([`super::SMT_SLOWDOWN`]).
//!
//! `in_flight` is the number of lines a thread waits for at once. With one (a chain of dependent loads), latency
//! dominates, and few threads saturate no controller: an array used mostly by one node is best on that node. Prefetched
//! streams have about ten: then bandwidth dominates, and the array is best spread. A profile cannot distinguish the
//! two.

use numaloc_model::{CommMatrix, LogicalNode, LogicalPu, PageUsage, ThreadAccess, ThreadIdx};
use numaloc_topology::Topology;

use super::busy::Busy;
use crate::links::{BYTES_PER_S, Links};

/// Parameters of the machine in the objective.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weights {
    /// Share (0..=1) of the recorded accesses that reach memory.
    pub memory_share: f64,
    /// Bytes transferred per access or communication event.
    pub line_bytes: f64,
    /// Seconds from a core to its own node's memory.
    pub local_latency_s: f64,
    /// Lines a thread waits for at once, at least 1.
    pub in_flight: f64,
    /// Bytes per second of a memory controller.
    pub controller_bytes_per_s: f64,
    /// Bytes per second of a link, if the machine does not specify it.
    pub link_bytes_per_s: f64,
}

impl Default for Weights {
    /// A server of the 2010s: 64-byte lines, 90 ns, 60 GB/s per node, 20 GB/s per link; one access in ten leaves the
    /// private caches, and each is waited for by itself.
    fn default() -> Self {
        Self {
            memory_share: 0.1,
            line_bytes: 64.0,
            local_latency_s: 90e-9,
            in_flight: 1.0,
            controller_bytes_per_s: 60e9,
            link_bytes_per_s: BYTES_PER_S,
        }
    }
}

impl Weights {
    /// The machine description's values, and defaults for those it does not specify.
    #[must_use]
    pub fn of(topology: &Topology) -> Self {
        let default = Self::default();
        topology.hardware().map_or(default, |hardware| Self {
            line_bytes: hardware.line_bytes as f64,
            local_latency_s: hardware.memory_latency_ns * 1e-9,
            controller_bytes_per_s: hardware.memory_bandwidth_bytes_per_s,
            ..default
        })
    }
}

/// A value of the objective, by term, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Mean time of a thread spent waiting for lines.
    pub latency_s: f64,
    /// Time of the busiest controller.
    pub controller_s: f64,
    /// Time of the busiest link.
    pub link_s: f64,
}

impl Cost {
    /// J.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.latency_s + self.controller_s + self.link_s
    }
}

/// The objective for one machine, communication and number of threads.
pub struct Objective<'a> {
    pub(super) topology: &'a Topology,
    pub(super) weights: Weights,
    /// Communication by thread: `(other, events)` by ascending other, each unordered pair at both ends.
    pub(super) partners: Vec<Vec<(usize, f64)>>,
    comm: &'a CommMatrix,
    links: Links,
    /// Seconds for a line from memory of a node (column) to a core of a node (row).
    memory_s: Vec<f64>,
    nodes: usize,
}

impl<'a> Objective<'a> {
    /// `comm[(src, dst)]` counts events: lines that `dst` received from `src`.
    #[must_use]
    pub fn new(topology: &'a Topology, comm: &'a CommMatrix, weights: Weights) -> Self {
        let nodes = topology.nodes().len();
        let mut partners = vec![Vec::new(); comm.threads()];
        for (src, dst, events) in comm.cells().filter(|(src, dst, _)| src != dst) {
            partners[src].push((dst, events));
            partners[dst].push((src, events));
        }
        for partners in &mut partners {
            partners.sort_by_key(|&(other, _)| other);
            partners.dedup_by(|again, first| {
                let same = again.0 == first.0;
                if same {
                    first.1 += again.1;
                }
                same
            });
        }
        Self {
            links: Links::of(topology, weights.link_bytes_per_s, weights.local_latency_s),
            topology,
            weights,
            partners,
            comm,
            memory_s: (0..nodes * nodes)
                .map(|at| memory_s(topology, &weights, at / nodes, at % nodes))
                .collect(),
            nodes,
        }
    }

    /// Number of nodes, memory-only ones included.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// Seconds to copy `bytes` from memory of one node to another: at the bandwidth of the slowest controller or link
    /// on the way.
    ///
    /// # Panics
    /// If the machine has no such node.
    #[must_use]
    pub fn copy_s(&self, from: LogicalNode, to: LogicalNode, bytes: f64) -> f64 {
        let links = self.route(from.index(), to.index()).iter();
        let slowest = links
            .map(|&link| self.link_bytes_per_s()[link])
            .fold(self.weights.controller_bytes_per_s, f64::min);
        bytes / slowest
    }

    /// Seconds that an access waits longer on the farthest node than on its own, at most.
    #[must_use]
    pub fn farther_s(&self) -> f64 {
        let own = |core: usize| self.memory_s(core, core);
        let all = (0..self.nodes).flat_map(|a| (0..self.nodes).map(move |b| (a, b)));
        let most_s = all
            .map(|(a, b)| self.memory_s(a, b) - own(a))
            .fold(0.0, f64::max);
        most_s * self.weights.memory_share / self.weights.in_flight
    }

    /// Seconds that threads at `pu` wait for a page on `node`, all threads added up.
    ///
    /// # Panics
    /// If `pu` is shorter than the threads of `uses`.
    #[must_use]
    pub fn wait_s(&self, uses: &[ThreadAccess], pu: &[LogicalPu], node: LogicalNode) -> f64 {
        let wait = uses.iter().map(|access| {
            let core = self.topology.node_of(pu[access.thread.index()]).index();
            access.total() as f64 * self.memory_s(core, node.index())
        });
        wait.sum::<f64>() * self.weights.memory_share / self.weights.in_flight
    }

    /// Links from node to node, first hop first.
    pub(super) fn route(&self, from: usize, to: usize) -> &[usize] {
        self.links.route(from, to)
    }

    /// Bytes per second of every link.
    pub(super) fn link_bytes_per_s(&self) -> &[f64] {
        self.links.bytes_per_s()
    }

    /// Seconds for a line from memory of `memory` to a core of `core`.
    pub(super) fn memory_s(&self, core: usize, memory: usize) -> f64 {
        self.memory_s[core * self.nodes + memory]
    }

    /// Seconds for a line from one core to another.
    pub(super) fn transfer_s(&self, a: LogicalPu, b: LogicalPu) -> f64 {
        self.weights.local_latency_s * self.topology.distance(a, b) / 10.0
    }

    /// Accesses and communication events of each of `threads` threads: the work of its PU.
    pub(super) fn work(&self, usage: &PageUsage, threads: usize) -> Vec<f64> {
        let mut work = vec![0.0; threads];
        for access in usage.pages().iter().flat_map(|page| usage.accesses(page)) {
            work[access.thread.index()] += access.total() as f64;
        }
        for (work, partners) in work.iter_mut().zip(&self.partners) {
            *work += partners.iter().map(|(_, events)| events).sum::<f64>();
        }
        work
    }

    /// J of threads at `pu` and pages at `node` (`None`: a page without cost), from scratch. O(page cells +
    /// communication cells).
    ///
    /// # Panics
    /// If `pu` or `node` is shorter than threads or pages.
    #[must_use]
    pub fn cost(&self, usage: &PageUsage, pu: &[LogicalPu], node: &[Option<LogicalNode>]) -> Cost {
        self.seated(usage, pu).cost(node)
    }

    /// The parts of the cost that do not depend on the pages, for rating many placements under one mapping. O(page
    /// cells + communication cells).
    pub(super) fn seated<'s>(&'s self, usage: &'s PageUsage, pu: &[LogicalPu]) -> Seated<'s> {
        let home: Vec<usize> = pu
            .iter()
            .map(|&pu| self.topology.node_of(pu).index())
            .collect();
        let cells = usage.pages().len() * self.nodes;
        let by_core = (cells <= MOST_CELLS).then(|| {
            let mut by_core = vec![0; cells];
            for (page, counts) in usage.pages().iter().zip(by_core.chunks_mut(self.nodes)) {
                usage.by_node(page, |thread| home[thread.index()], counts);
            }
            by_core
        });
        let mut latency_s = 0.0;
        let mut links = vec![0.0; self.link_bytes_per_s().len()];
        for (src, dst, events) in self.comm.cells().filter(|(src, dst, _)| src != dst) {
            latency_s += events * self.transfer_s(pu[src], pu[dst]);
            for &link in self.route(home[src], home[dst]) {
                links[link] += events;
            }
        }
        let mut busy = Busy::new(self.topology);
        for (&work, &pu) in self.work(usage, pu.len()).iter().zip(pu) {
            busy.add(pu, work);
        }
        Seated {
            objective: self,
            usage,
            at_once: busy.at_once(busy.squares()),
            home,
            by_core,
            latency_s,
            links,
        }
    }
}

fn memory_s(topology: &Topology, weights: &Weights, core: usize, memory: usize) -> f64 {
    let node = LogicalNode::from_index;
    let local = topology.node_distance(node(core), node(core)).max(1e-9);
    weights.local_latency_s * topology.node_distance(node(core), node(memory)) / local
}

/// Accesses by page and node are stored up to this many pages times nodes: 256 MiB.
const MOST_CELLS: usize = 1 << 25;

/// Threads on their PUs, without a placement of the pages.
pub(super) struct Seated<'s> {
    objective: &'s Objective<'s>,
    usage: &'s PageUsage,
    /// Node of every thread.
    home: Vec<usize>,
    /// Pages x nodes: accesses to a page from cores of a node, if the table fits.
    by_core: Option<Vec<u64>>,
    /// Sum over communication, and the lines that it adds to every link.
    latency_s: f64,
    links: Vec<f64>,
    at_once: f64,
}

impl Seated<'_> {
    /// J with pages at `node`. O(pages x nodes).
    pub(super) fn cost(&self, node: &[Option<LogicalNode>]) -> Cost {
        let objective = self.objective;
        let (nodes, weights) = (objective.nodes, &objective.weights);
        let traffic = self.traffic(node);
        let mut latency = self.latency_s;
        let mut controllers = vec![0.0; nodes];
        let mut links = self.links.clone();
        for (at, &accesses) in traffic.iter().enumerate().filter(|(_, all)| **all > 0) {
            let (memory, core) = (at / nodes, at % nodes);
            let lines = accesses as f64 * weights.memory_share;
            latency += lines * objective.memory_s(core, memory);
            controllers[memory] += lines;
            for &link in objective.route(memory, core) {
                links[link] += lines;
            }
        }
        let busiest = |times: &mut dyn Iterator<Item = f64>| times.fold(0.0, f64::max);
        Cost {
            latency_s: latency / (self.at_once * weights.in_flight),
            controller_s: busiest(
                &mut controllers
                    .iter()
                    .map(|lines| lines * weights.line_bytes / weights.controller_bytes_per_s),
            ),
            link_s: busiest(
                &mut links
                    .iter()
                    .zip(objective.link_bytes_per_s())
                    .map(|(lines, bandwidth)| lines * weights.line_bytes / bandwidth),
            ),
        }
    }

    /// Accesses to memory of a node (row) from cores of a node.
    fn traffic(&self, node: &[Option<LogicalNode>]) -> Vec<u64> {
        let nodes = self.objective.nodes;
        let mut traffic = vec![0_u64; nodes * nodes];
        let mut counts = vec![0_u64; nodes];
        for (at, (page, node)) in self.usage.pages().iter().zip(node).enumerate() {
            let Some(node) = node else { continue };
            let counts = match &self.by_core {
                Some(by_core) => &by_core[at * nodes..][..nodes],
                None => {
                    let home = |thread: ThreadIdx| self.home[thread.index()];
                    self.usage.by_node(page, home, &mut counts);
                    &counts
                }
            };
            let row = &mut traffic[node.index() * nodes..][..nodes];
            for (sum, count) in row.iter_mut().zip(counts) {
                *sum += count;
            }
        }
        traffic
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{machine, usage};

    fn simple() -> Weights {
        Weights {
            memory_share: 1.0,
            line_bytes: 1.0,
            local_latency_s: 1.0,
            in_flight: 1.0,
            controller_bytes_per_s: 2.0,
            link_bytes_per_s: 4.0,
        }
    }

    #[test]
    fn adds_up_by_hand() {
        // Two nodes, distance 10 local and 20 remote, threads 0 and 1 on nodes 0 and 1.
        // Page 0 on node 0: 6 accesses by thread 0 (6 x 1 s), 2 by thread 1 (2 x 2 s). Page 1 on node 1:
        // 4 by thread 0 (4 x 2 s). Communication 0 -> 1: 3 events at distance 20 (3 x 2 s).
        // Work: thread 0 has 6 + 4 + 3 = 13, thread 1 has 2 + 3 = 5: P = 18^2 / (13^2 + 5^2) = 324 / 194.
        // Latency (6 + 4 + 8 + 6) x 194 / 324. Controllers 8 and 4 lines: 8 / 2 = 4.
        // Link 0 -> 1: 2 + 3 lines, link 1 -> 0: 4 lines; busiest 5 / 4 = 1.25.
        let topology = machine(2);
        let comm = CommMatrix::from_cells(2, [(0, 1, 3.0)]).unwrap();
        let pages = usage(&[&[(0, 6), (1, 2)], &[(0, 4)]]);
        let objective = Objective::new(&topology, &comm, simple());
        let nodes = [Some(LogicalNode(0)), Some(LogicalNode(1))];
        let cost = objective.cost(&pages, &[LogicalPu(0), LogicalPu(1)], &nodes);
        assert!(
            (cost.latency_s - 24.0 * 194.0 / 324.0).abs() < 1e-12,
            "{cost:?}"
        );
        assert_eq!((cost.controller_s, cost.link_s), (4.0, 1.25));
    }

    #[test]
    fn threads_on_one_pu_wait_one_after_the_other() {
        // One node, two PUs, 5 local accesses by each of two threads, 1 s each: 10 s of waiting, shared by two PUs or
        // by one.
        let topology = numaloc_topology::resolve("numa:1 core:2 pu:1").unwrap();
        let comm = CommMatrix::empty(2);
        let pages = usage(&[&[(0, 5)], &[(1, 5)]]);
        let objective = Objective::new(&topology, &comm, simple());
        let latency = |pus: [u32; 2]| {
            objective
                .cost(&pages, &pus.map(LogicalPu), &[Some(LogicalNode(0)); 2])
                .latency_s
        };
        assert_eq!((latency([0, 1]), latency([0, 0])), (5.0, 10.0));
    }
}
