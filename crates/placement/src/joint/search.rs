//! Local search over threads and pages together.
//!
//! The maxima in the objective are flat where two controllers or links are equally busy, so the search is guided by a
//! smooth approximation, the 16-norm of the loads (never below the maximum). Visited solutions are rated by the
//! objective itself. All sums are updated incrementally. A proposal only computes what would change: O(candidates x
//! accessing nodes x hops) for a page, O(nodes x hops + partners) for a thread, without the partners if a table has
//! their cost ([`super::waits`]). A proposal that cannot be better even with idle links is rejected before links are
//! computed.

use numaloc_model::{LogicalNode, LogicalPu, PageUsage};

use super::norm::{Changes, Norm};
use super::objective::{Objective, working_at_once};
use super::waits::Waits;

/// Up to this many PUs, distances are stored in a table.
const TABLE_PUS: usize = 2048;

/// Fixed cost of a proposal, in partners visited.
const EFFORT: usize = 64;

/// Effect of a proposed change of seats.
struct Proposal {
    latency: f64,
    squares: f64,
    value: f64,
}

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
    /// Work by thread, in total and by PU, and the sum of the latter's squares.
    work: Vec<f64>,
    all_work: f64,
    busy: Vec<f64>,
    squares: f64,
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
            changes: Changes::new(objective.link_bytes_per_s.len()),
            rerouted: vec![(0.0, 0.0); nodes],
            room,
            latency: 0.0,
            all_work: work.iter().sum(),
            work,
            busy: vec![0.0; objective.topology.pus().len()],
            squares: 0.0,
            controllers: Norm::new(nodes, scale),
            links: Norm::new(objective.link_bytes_per_s.len(), scale),
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
        self.busy.fill(0.0);
        self.squares = 0.0;
        for norm in [&mut self.controllers, &mut self.links] {
            norm.clear();
        }
        for thread in 0..self.pu.len() {
            self.occupy(thread);
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
        let waiting = self.waiting(self.latency, self.squares);
        waiting + self.controllers.value() + self.links.value()
    }

    /// Mean waiting time of a thread, from the sum over lines and the sum of squares of the PUs' work.
    fn waiting(&self, latency: f64, squares: f64) -> f64 {
        let at_once = working_at_once(self.all_work, squares);
        latency / (at_once * self.objective.weights.in_flight)
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
                .add(link, bytes / self.objective.link_bytes_per_s[link]);
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
                        .add(link, 0.5 * bytes / objective.link_bytes_per_s[link]);
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

    fn events_between(&self, a: usize, b: usize) -> f64 {
        let partners = self.partners(a);
        let at = partners.binary_search_by_key(&b, |&(other, _)| other);
        at.map_or(0.0, |at| partners[at].1)
    }

    fn transfer(&self, a: LogicalPu, b: LogicalPu) -> f64 {
        match &self.transfer_s {
            Some(table) => table[a.index() * self.busy.len() + b.index()],
            None => self.objective.transfer_s(a, b),
        }
    }

    fn occupy(&mut self, thread: usize) {
        let busy = &mut self.busy[self.pu[thread].index()];
        self.squares -= *busy * *busy;
        *busy += self.work[thread];
        self.squares += *busy * *busy;
    }

    /// Tries every exchange of two threads and every move to a PU with room, and accepts those that help. Returns
    /// whether any did. `work` is the remaining budget, in partners visited.
    pub(super) fn improve_threads(&mut self, work: &mut u64) -> bool {
        let threads = self.pu.len();
        let pus = self.objective.topology.pus().len();
        let most = threads.div_ceil(pus);
        let mut used = vec![0; pus];
        self.pu.iter().for_each(|pu| used[pu.index()] += 1);
        let mut helped = false;
        let mut best = self.value();
        for a in 0..threads {
            let effort = |search: &Self, other: usize| match search.waits {
                Some(_) => EFFORT as u64,
                None => (search.partners(a).len() + search.partners(other).len() + EFFORT) as u64,
            };
            for b in a + 1..threads {
                if self.pu[a] == self.pu[b] || *work == 0 {
                    continue;
                }
                *work = work.saturating_sub(effort(self, b));
                if let Some(proposal) = self.propose(a, Some(b), self.pu[b], best * (1.0 - 1e-9)) {
                    (best, helped) = (proposal.value, true);
                    self.accept(a, Some(b), self.pu[b], &proposal);
                }
            }
            for free in 0..pus {
                if used[free] >= most || *work == 0 {
                    continue;
                }
                *work = work.saturating_sub(effort(self, a));
                let (old, new) = (self.pu[a], LogicalPu::from_index(free));
                if let Some(proposal) = self.propose(a, None, new, best * (1.0 - 1e-9)) {
                    used[old.index()] -= 1;
                    used[free] += 1;
                    (best, helped) = (proposal.value, true);
                    self.accept(a, None, new, &proposal);
                }
            }
        }
        self.recount();
        helped
    }

    /// The cost if `a` moved to `to` and `b`, the thread there, to the PU of `a`; `None` if it is not below `limit`.
    fn propose(
        &mut self,
        a: usize,
        b: Option<usize>,
        to: LogicalPu,
        limit: f64,
    ) -> Option<Proposal> {
        let from = self.pu[a];
        let between = b.map_or(0.0, |b| self.events_between(a, b));
        let mut latency = self.latency + self.farther(a, b, between, from, to);
        let mut work = self.work[a];
        if let Some(b) = b {
            latency += self.farther(b, Some(a), between, to, from);
            work -= self.work[b];
        }
        let (here, there) = (self.busy[from.index()], self.busy[to.index()]);
        let squares = self.squares + 2.0 * work * (there - here + work);
        self.changes.clear();
        let (home, away) = (self.node_of[from.index()], self.node_of[to.index()]);
        let controllers = self.controllers.value();
        if home != away {
            latency += self.reroute(a, b, between, home, away);
            // A lower bound: links from and to both nodes carry nothing.
            let gone = self.part_of[home] + self.part_of[away];
            let rest = self.links.least_without(gone);
            if self.waiting(latency, squares) + controllers + rest >= limit {
                return None;
            }
            self.carry_rerouted(home, away);
        }
        let value =
            self.waiting(latency, squares) + controllers + self.links.value_with(&self.changes);
        (value < limit).then_some(Proposal {
            latency,
            squares,
            value,
        })
    }

    /// How much longer `thread` waits for its partners (except `without`, with whom it exchanges `between` events) on
    /// `to` than on `from`.
    fn farther(
        &self,
        thread: usize,
        without: Option<usize>,
        between: f64,
        from: LogicalPu,
        to: LogicalPu,
    ) -> f64 {
        if let Some(waits) = &self.waits {
            let except = without.map_or(0.0, |other| {
                let there = self.pu[other];
                between * (self.transfer(to, there) - self.transfer(from, there))
            });
            return waits.at(thread, to) - waits.at(thread, from) - except;
        }
        let mut more = 0.0;
        for &(other, events) in self.partners(thread) {
            if Some(other) != without {
                let there = self.pu[other];
                more += events * (self.transfer(to, there) - self.transfer(from, there));
            }
        }
        more
    }

    /// Stores in `rerouted` the traffic that changes its route if `a` moved from node `home` to `away` and `b` back;
    /// returns how much longer both wait for memory. The load of the controllers does not change.
    fn reroute(
        &mut self,
        a: usize,
        b: Option<usize>,
        between: f64,
        home: usize,
        away: usize,
    ) -> f64 {
        let objective = self.objective;
        let (nodes, share) = (objective.nodes(), objective.weights.memory_share);
        let mut latency = 0.0;
        for node in 0..nodes {
            let mut moved = share * self.by_memory[a * nodes + node];
            let mut events = self.by_partner[a * nodes + node];
            if let Some(b) = b {
                moved -= share * self.by_memory[b * nodes + node];
                events -= self.by_partner[b * nodes + node];
                // The distance between the two stays the same, so their own exchange is not rerouted.
                if node == away {
                    events -= between;
                } else if node == home {
                    events += between;
                }
            }
            latency += moved * (objective.memory_s(away, node) - objective.memory_s(home, node));
            self.rerouted[node] = (moved, events);
        }
        latency
    }

    /// Stores in `changes` the loads of links that change by `rerouted`.
    fn carry_rerouted(&mut self, home: usize, away: usize) {
        for node in 0..self.objective.nodes() {
            let (moved, events) = self.rerouted[node];
            // Half of the events go each way.
            for (place, sign) in [(home, -1.0), (away, 1.0)] {
                self.carry(node, place, sign * (moved + 0.5 * events));
                self.carry(place, node, sign * 0.5 * events);
            }
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
                .add(link, bytes / objective.link_bytes_per_s[link]);
        }
    }

    /// Applies the last proposal.
    fn accept(&mut self, a: usize, b: Option<usize>, to: LogicalPu, proposal: &Proposal) {
        let from = self.pu[a];
        self.seat(a, to);
        if let Some(b) = b {
            self.seat(b, from);
        }
        self.latency = proposal.latency;
        self.squares = proposal.squares;
        self.links.apply(&self.changes);
        self.recount_parts();
    }

    fn seat(&mut self, thread: usize, to: LogicalPu) {
        let nodes = self.objective.nodes();
        let home = self.home(thread);
        let from = self.pu[thread];
        self.busy[from.index()] -= self.work[thread];
        self.busy[to.index()] += self.work[thread];
        self.pu[thread] = to;
        let away = self.home(thread);
        let partners = self.partners(thread);
        if let (Some(waits), Some(transfer_s)) = (&mut self.waits, &self.transfer_s) {
            waits.moved(partners, from, to, transfer_s);
        }
        for &(other, events) in partners {
            self.by_partner[other * nodes + home] -= events;
            self.by_partner[other * nodes + away] += events;
        }
    }

    /// Moves pages, in the given order, to the node with the lowest total cost. Returns whether any moved.
    pub(super) fn improve_pages(&mut self, order: &[usize], candidates: &[LogicalNode]) -> bool {
        let nodes = self.objective.nodes();
        let mut from = vec![0_u64; nodes];
        let mut helped = false;
        for &at in order {
            let Some(old) = self.node[at] else { continue };
            let page = &self.usage.pages()[at];
            self.usage
                .by_node(page, |thread| self.home(thread.index()), &mut from);
            let before = self.value();
            let (mut best, mut least) = (old, before * (1.0 - 1e-9));
            self.shift(&from, old, -1.0);
            for &node in candidates {
                if node == old || self.room[node.index()] == 0 {
                    continue;
                }
                if let Some(value) = self.value_there(&from, node, least) {
                    (best, least) = (node, value);
                }
            }
            self.shift(&from, best, 1.0);
            if best != old {
                helped = true;
                self.node[at] = Some(best);
                self.room[old.index()] += 1;
                self.room[best.index()] -= 1;
            }
        }
        self.recount();
        helped
    }

    /// The cost with an unplaced page at `memory`; `None` if it is not below `limit`. `from` are the page's accesses by
    /// node.
    fn value_there(&mut self, from: &[u64], memory: LogicalNode, limit: f64) -> Option<f64> {
        let (objective, weights) = (self.objective, &self.objective.weights);
        let memory = memory.index();
        let (mut seconds, mut all) = (0.0, 0.0);
        for (core, &accesses) in from.iter().enumerate() {
            seconds += accesses as f64 * objective.memory_s(core, memory);
            all += accesses as f64;
        }
        let latency = self.latency + seconds * weights.memory_share;
        let bytes = all * weights.memory_share * weights.line_bytes;
        let controllers = self
            .controllers
            .value_if(memory, bytes / weights.controller_bytes_per_s);
        let value = self.waiting(latency, self.squares) + controllers;
        // The page's lines can only add load to links.
        if value + self.links.value() >= limit {
            return None;
        }
        self.changes.clear();
        for (core, &accesses) in from.iter().enumerate() {
            self.carry(memory, core, accesses as f64 * weights.memory_share);
        }
        let value = value + self.links.value_with(&self.changes);
        (value < limit).then_some(value)
    }

    fn shift(&mut self, from: &[u64], memory: LogicalNode, sign: f64) {
        for (core, &accesses) in from.iter().enumerate() {
            if accesses > 0 {
                self.count(core, memory.index(), sign * accesses as f64);
            }
        }
        let all: u64 = from.iter().sum();
        self.serve(memory.index(), sign * all as f64);
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
