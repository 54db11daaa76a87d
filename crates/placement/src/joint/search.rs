//! Local search over threads and pages together: a solution and its sums. [`threads`] and [`pages`] propose changes.
//!
//! The maxima in the objective are flat where two controllers or links are equally busy, so the search is guided by a
//! smooth approximation, the 16-norm of the loads (never below the maximum). Visited solutions are rated by the
//! objective itself. All sums are updated incrementally. A proposal only computes what would change: O(candidates x
//! accessing nodes x hops) for a page, O(nodes x hops + partners) for a thread, without the partners if a table has
//! their cost ([`super::waits`]). A proposal that cannot be better even with idle links is rejected before links are
//! computed.

use numaloc_model::{LogicalNode, LogicalPu, PageUsage};

use super::busy::Busy;
use super::norm::{Changes, Norm};
use super::objective::Objective;
use super::waits::Waits;

mod pages;
mod threads;

/// Up to this many PUs, distances are stored in a table.
const TABLE_PUS: usize = 2048;

/// A solution (threads and pages) and its cost.
pub(super) struct Search<'a> {
    objective: &'a Objective<'a>,
    usage: &'a PageUsage,
    pu: Vec<LogicalPu>,
    node: Vec<Option<LogicalNode>>,
    /// Threads x nodes: accesses of a thread to pages of a node.
    by_memory: Vec<f64>,
    /// Threads x nodes: events that a thread exchanges with threads of a node.
    by_partner: Vec<f64>,
    /// PUs x PUs: seconds for a line from one to the other, if the table fits.
    transfer_s: Option<Vec<f64>>,
    /// Time that threads wait for partners, if threads have many.
    waits: Option<Waits>,
    /// Node of every PU.
    node_of: Vec<usize>,
    /// By node: the links on its routes, and their part of the links' norm.
    links_of: Vec<Vec<usize>>,
    part_of: Vec<f64>,
    /// Scratch space for a proposal's changes of links, and for rerouted traffic by node: lines of memory, events with
    /// partners.
    changes: Changes,
    rerouted: Vec<(f64, f64)>,
    /// Remaining capacity of each node, in pages.
    room: Vec<u64>,
    /// Sum over lines in seconds; `value` divides it by the number of PUs that work at once.
    latency: f64,
    /// Work by thread, and by PU.
    work: Vec<f64>,
    busy: Busy,
    controllers: Norm,
    links: Norm,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        objective: &'a Objective<'a>,
        usage: &'a PageUsage,
        capacity: &[u64],
        pu: &[LogicalPu],
        node: &[Option<LogicalNode>],
    ) -> Self {
        let nodes = objective.nodes();
        let lines = usage.total() as f64 * objective.weights.memory_share;
        let seconds = lines * objective.weights.line_bytes;
        let scale = seconds / objective.weights.controller_bytes_per_s / nodes as f64;
        let mut room = capacity.to_vec();
        for node in node.iter().flatten() {
            room[node.index()] = room[node.index()].saturating_sub(1);
        }
        let work = objective.work(usage, pu.len());
        let mut search = Self {
            objective,
            usage,
            pu: pu.to_vec(),
            node: node.to_vec(),
            by_memory: vec![0.0; pu.len() * nodes],
            by_partner: vec![0.0; pu.len() * nodes],
            transfer_s: transfers(objective),
            waits: None,
            node_of: (0..objective.topology.pus().len())
                .map(|pu| {
                    objective
                        .topology
                        .node_of(LogicalPu::from_index(pu))
                        .index()
                })
                .collect(),
            links_of: (0..nodes).map(|node| links_of(objective, node)).collect(),
            part_of: vec![0.0; nodes],
            changes: Changes::new(objective.link_bytes_per_s().len()),
            rerouted: vec![(0.0, 0.0); nodes],
            room,
            latency: 0.0,
            work,
            busy: Busy::new(objective.topology),
            controllers: Norm::new(nodes, scale),
            links: Norm::new(objective.link_bytes_per_s().len(), scale),
        };
        let partners = (0..pu.len()).map(|thread| search.partners(thread).len());
        if Waits::worthwhile(pu.len(), partners.sum(), search.node_of.len()) {
            search.keep_waits();
        }
        search.recount();
        search
    }

    /// Creates the table of waiting times, if the distances are in a table.
    fn keep_waits(&mut self) {
        let partners: Vec<_> = (0..self.pu.len())
            .map(|thread| self.partners(thread))
            .collect();
        let transfer_s = self.transfer_s.as_deref();
        self.waits = transfer_s.map(|transfer_s| Waits::new(&partners, &self.pu, transfer_s));
    }

    pub(super) fn pu(&self) -> &[LogicalPu] {
        &self.pu
    }

    pub(super) fn node(&self) -> &[Option<LogicalNode>] {
        &self.node
    }

    /// Recomputes all sums from scratch, because rounding errors accumulate.
    fn recount(&mut self) {
        let nodes = self.objective.nodes();
        self.by_memory.fill(0.0);
        for (page, node) in self.usage.pages().iter().zip(&self.node) {
            let Some(node) = node else { continue };
            for access in self.usage.accesses(page) {
                let at = access.thread.index() * nodes + node.index();
                self.by_memory[at] += access.total() as f64;
            }
        }
        self.by_partner.fill(0.0);
        for thread in 0..self.pu.len() {
            for &(other, events) in self.partners(thread) {
                let at = thread * nodes + self.home(other);
                self.by_partner[at] += events;
            }
        }
        self.latency = 0.0;
        self.busy.clear();
        for norm in [&mut self.controllers, &mut self.links] {
            norm.clear();
        }
        for thread in 0..self.pu.len() {
            self.busy.add(self.pu[thread], self.work[thread]);
            self.count_memory(thread);
            self.count_partners(thread);
        }
        self.recount_parts();
    }

    fn recount_parts(&mut self) {
        for (part, links) in self.part_of.iter_mut().zip(&self.links_of) {
            *part = self.links.part(links);
        }
    }

    fn value(&self) -> f64 {
        let waiting = self.waiting(self.latency, self.busy.squares());
        waiting + self.controllers.value() + self.links.value()
    }

    /// Mean waiting time of a thread, from the sum over lines and the sum of squares of the PUs' work.
    fn waiting(&self, latency: f64, squares: f64) -> f64 {
        latency / (self.busy.at_once(squares) * self.objective.weights.in_flight)
    }

    fn home(&self, thread: usize) -> usize {
        self.node_of[self.pu[thread].index()]
    }

    /// Adds `accesses` (possibly negative) from a core of node `core` to memory of node `memory`, without its
    /// controller.
    fn count(&mut self, core: usize, memory: usize, accesses: f64) {
        let weights = &self.objective.weights;
        let lines = accesses * weights.memory_share;
        self.latency += lines * self.objective.memory_s(core, memory);
        let bytes = lines * weights.line_bytes;
        for &link in self.objective.route(memory, core) {
            self.links
                .add(link, bytes / self.objective.link_bytes_per_s()[link]);
        }
    }

    /// Adds `accesses` (possibly negative) to the controller of a node.
    fn serve(&mut self, memory: usize, accesses: f64) {
        let weights = &self.objective.weights;
        let bytes = accesses * weights.memory_share * weights.line_bytes;
        self.controllers
            .add(memory, bytes / weights.controller_bytes_per_s);
    }

    fn count_memory(&mut self, thread: usize) {
        let (nodes, core) = (self.objective.nodes(), self.home(thread));
        for memory in 0..nodes {
            let accesses = self.by_memory[thread * nodes + memory];
            if accesses != 0.0 {
                self.count(core, memory, accesses);
                self.serve(memory, accesses);
            }
        }
    }

    /// Counts half of a thread's communication; its partners count the other half.
    fn count_partners(&mut self, thread: usize) {
        let objective = self.objective;
        let home = self.home(thread);
        for &(other, events) in self.partners(thread) {
            let events = 0.5 * events;
            self.latency += events * self.transfer(self.pu[thread], self.pu[other]);
            let bytes = events * objective.weights.line_bytes;
            // The direction is not stored per pair: half of the events count each way.
            let there = self.home(other);
            for (from, to) in [(home, there), (there, home)] {
                for &link in objective.route(from, to) {
                    self.links
                        .add(link, 0.5 * bytes / objective.link_bytes_per_s()[link]);
                }
            }
        }
    }

    /// Partners of a thread with their numbers of events, without those that have no PU here.
    fn partners(&self, thread: usize) -> &'a [(usize, f64)] {
        let partners = self.objective.partners.get(thread);
        let partners = partners.map_or(&[][..], |partners| partners);
        let known = partners.partition_point(|&(other, _)| other < self.pu.len());
        &partners[..known]
    }

    fn transfer(&self, a: LogicalPu, b: LogicalPu) -> f64 {
        match &self.transfer_s {
            Some(table) => table[a.index() * self.node_of.len() + b.index()],
            None => self.objective.transfer_s(a, b),
        }
    }

    /// Adds `lines` to the links on the route from node `from` to node `to`.
    fn carry(&mut self, from: usize, to: usize, lines: f64) {
        if lines == 0.0 {
            return;
        }
        let objective = self.objective;
        let bytes = lines * objective.weights.line_bytes;
        for &link in objective.route(from, to) {
            self.changes
                .add(link, bytes / objective.link_bytes_per_s()[link]);
        }
    }
}

/// Links on the routes between a node and the others.
fn links_of(objective: &Objective, node: usize) -> Vec<usize> {
    let ways = (0..objective.nodes()).flat_map(|other| {
        let (there, back) = (objective.route(node, other), objective.route(other, node));
        there.iter().chain(back)
    });
    let mut links: Vec<usize> = ways.copied().collect();
    links.sort_unstable();
    links.dedup();
    links
}

/// PUs x PUs seconds for a line, if the table takes at most 32 MiB; otherwise each query walks up the tree.
fn transfers(objective: &Objective) -> Option<Vec<f64>> {
    let pus = objective.topology.pus().len();
    (pus <= TABLE_PUS).then(|| {
        let pu = LogicalPu::from_index;
        (0..pus * pus)
            .map(|at| objective.transfer_s(pu(at / pus), pu(at % pus)))
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::joint::Weights;
    use crate::test_support::usage;
    use numaloc_model::CommMatrix;
    use proptest::prelude::*;
    use proptest::test_runner::TestCaseResult;

    /// The first moves remove the only memory traffic from the links; the events of the two threads are 2^-80 of it in
    /// the 16-norm.
    #[test]
    fn small_loads_count_after_large_ones_are_gone() {
        let moves = vec![(1, 4, 8, true), (1, 0, 8, false), (6, 0, 8, true)];
        proposals_predict_their_cost(vec![(2, 1, 1)], &[vec![(6, 32)]], moves, false).unwrap();
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn a_proposal_predicts_its_cost(
            cells in prop::collection::vec((0_usize..8, 0_usize..8, 1_u32..100), 0..40),
            table in prop::collection::vec(prop::collection::vec((0_u32..8, 1_u64..2000), 1..4), 1..20),
            moves in prop::collection::vec((0_usize..8, 0_usize..8, 8_u32..12, any::<bool>()), 1..12),
            with_table in any::<bool>(),
        ) {
            proposals_predict_their_cost(cells, &table, moves, with_table)?;
        }
    }

    /// The predicted cost of a proposal equals its cost from scratch: 8 threads on 12 PUs of 3 nodes.
    fn proposals_predict_their_cost(
        cells: Vec<(usize, usize, u32)>,
        table: &[Vec<(u32, u64)>],
        moves: Vec<(usize, usize, u32, bool)>,
        with_table: bool,
    ) -> TestCaseResult {
        let topology = numaloc_topology::resolve("numa:3 core:2 pu:2").unwrap();
        let cells = cells.into_iter().filter(|(a, b, _)| a != b);
        let comm = CommMatrix::from_cells(8, cells.map(|(a, b, w)| (a, b, f64::from(w)))).unwrap();
        let rows: Vec<&[(u32, u64)]> = table.iter().map(|row| &row[..]).collect();
        let pages = usage(&rows);
        let objective = Objective::new(&topology, &comm, Weights::default());
        let node: Vec<_> = (0..rows.len())
            .map(|p| Some(LogicalNode::from_index(p % 3)))
            .collect();
        let pu: Vec<_> = (0..8).map(LogicalPu).collect();
        let fresh = |pu: &[LogicalPu]| Search::new(&objective, &pages, &[99; 3], pu, &node);
        let mut search = fresh(&pu);
        if with_table {
            search.keep_waits();
        }
        for (a, b, free, exchange) in moves {
            let (b, to) = match exchange {
                true if a == b => continue,
                true => (Some(b), search.pu[b]),
                false if search.pu.contains(&LogicalPu(free)) => continue,
                false => (None, LogicalPu(free)),
            };
            let proposal = search.propose(a, b, to, f64::INFINITY).unwrap();
            // No proposal at or above the limit is made, and the bound never rejects one below it.
            prop_assert!(search.propose(a, b, to, proposal.value).is_none());
            let proposal = search
                .propose(a, b, to, proposal.value * 1.000_001)
                .unwrap();
            search.accept(a, b, to, &proposal);
            let expected = fresh(&search.pu).value();
            for value in [proposal.value, search.value()] {
                prop_assert!(
                    (value - expected).abs() <= 1e-9 * expected,
                    "{value} {expected}"
                );
            }
        }
        Ok(())
    }
}
