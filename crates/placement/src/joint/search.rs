//! Local search on threads and pages together.
//!
//! The maxima of the objective are flat where two controllers or links are equally busy, so the search
//! steers by a smooth stand-in, the 16-norm of the loads (never below the maximum). What it visits is
//! judged by the objective itself. All sums are kept as running totals. A proposal only asks what would
//! change: O(candidates x accessing nodes x hops) for a page, O(nodes x hops + partners) for a thread.

use numaloc_model::{LogicalNode, LogicalPu, PageUsage};

use super::objective::{Objective, working_at_once};

/// Loads whose 16-norm is kept up to date.
struct Norm {
    /// Seconds each.
    load: Vec<f64>,
    /// Sum of `(load / scale)^16`.
    sum: f64,
    scale: f64,
}

const POWER: i32 = 16;

/// Machines of at most this many PUs have a table of their distances.
const TABLE_PUS: usize = 2048;

/// What a proposal costs apart from visiting partners, in partners.
const EFFORT: usize = 64;

impl Norm {
    fn new(size: usize, scale: f64) -> Self {
        Self {
            load: vec![0.0; size],
            sum: 0.0,
            scale: if scale > 0.0 { scale } else { 1.0 },
        }
    }

    fn add(&mut self, at: usize, seconds: f64) {
        self.sum -= (self.load[at] / self.scale).powi(POWER);
        self.load[at] += seconds;
        self.sum += (self.load[at] / self.scale).powi(POWER);
    }

    fn value(&self) -> f64 {
        self.of_sum(self.sum)
    }

    fn of_sum(&self, sum: f64) -> f64 {
        self.scale * sum.max(0.0).powf(1.0 / f64::from(POWER))
    }

    /// The norm if these changes were made.
    fn value_with(&self, changes: &Changes) -> f64 {
        let mut sum = self.sum;
        for &at in &changes.touched {
            let (old, more) = (self.load[at], changes.more[at]);
            sum += ((old + more) / self.scale).powi(POWER) - (old / self.scale).powi(POWER);
        }
        self.of_sum(sum)
    }

    fn apply(&mut self, changes: &Changes) {
        for &at in &changes.touched {
            self.add(at, changes.more[at]);
        }
    }
}

/// Seconds that loads would change by; most do not.
struct Changes {
    more: Vec<f64>,
    touched: Vec<usize>,
    is_touched: Vec<bool>,
}

impl Changes {
    fn new(size: usize) -> Self {
        Self {
            more: vec![0.0; size],
            touched: Vec::new(),
            is_touched: vec![false; size],
        }
    }

    fn clear(&mut self) {
        for at in self.touched.drain(..) {
            self.more[at] = 0.0;
            self.is_touched[at] = false;
        }
    }

    fn add(&mut self, at: usize, seconds: f64) {
        if !self.is_touched[at] {
            self.is_touched[at] = true;
            self.touched.push(at);
        }
        self.more[at] += seconds;
    }
}

/// What a change of seats would do.
struct Proposal {
    latency: f64,
    squares: f64,
    value: f64,
}

/// Threads and pages somewhere, and what that costs.
pub(super) struct Search<'a> {
    objective: &'a Objective<'a>,
    usage: &'a PageUsage,
    pu: Vec<LogicalPu>,
    node: Vec<Option<LogicalNode>>,
    /// Threads x nodes: accesses of a thread to pages of a node.
    by_memory: Vec<f64>,
    /// Threads x nodes: events that a thread exchanges with threads of a node.
    by_partner: Vec<f64>,
    /// PUs x PUs: seconds for a line from one to the other, where that fits.
    transfer_s: Option<Vec<f64>>,
    /// Room for a proposal's changes of links.
    changes: Changes,
    /// Pages each node still has room for.
    room: Vec<u64>,
    /// Sum over lines, seconds; divided by the PUs that work at once in `value`.
    latency: f64,
    /// Work by thread, in all, by PU, and the sum of the latter's squares.
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
            changes: Changes::new(objective.link_bytes_per_s.len()),
            room,
            latency: 0.0,
            all_work: work.iter().sum(),
            work,
            busy: vec![0.0; objective.topology.pus().len()],
            squares: 0.0,
            controllers: Norm::new(nodes, scale),
            links: Norm::new(objective.link_bytes_per_s.len(), scale),
        };
        search.recount();
        search
    }

    pub(super) fn pu(&self) -> &[LogicalPu] {
        &self.pu
    }

    pub(super) fn node(&self) -> &[Option<LogicalNode>] {
        &self.node
    }

    /// All sums from scratch (they drift).
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
            norm.load.fill(0.0);
            norm.sum = 0.0;
        }
        for thread in 0..self.pu.len() {
            self.occupy(thread);
            self.count_memory(thread);
            self.count_partners(thread);
        }
    }

    fn value(&self) -> f64 {
        let at_once = working_at_once(self.all_work, self.squares);
        let waiting = self.latency / (at_once * self.objective.weights.in_flight);
        waiting + self.controllers.value() + self.links.value()
    }

    fn home(&self, thread: usize) -> usize {
        self.objective.topology.node_of(self.pu[thread]).index()
    }

    /// `accesses` more (or fewer) from a core of node `core` to memory of node `memory`, without
    /// its controller.
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

    /// `accesses` more (or fewer) to memory of a node.
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

    /// Half of a thread's communication: the other half is its partners'.
    fn count_partners(&mut self, thread: usize) {
        let objective = self.objective;
        let home = self.home(thread);
        for &(other, events) in self.partners(thread) {
            let events = 0.5 * events;
            self.latency += events * self.transfer(self.pu[thread], self.pu[other]);
            let bytes = events * objective.weights.line_bytes;
            // Which of the two wrote is not kept per pair: half of it each way.
            let there = self.home(other);
            for (from, to) in [(home, there), (there, home)] {
                for &link in objective.route(from, to) {
                    self.links
                        .add(link, 0.5 * bytes / objective.link_bytes_per_s[link]);
                }
            }
        }
    }

    /// Whom a thread exchanges with, and how many events; without those that have no PU here.
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

    /// Tries every exchange of two threads and every move to a PU with room; takes what helps. Whether
    /// anything did. `work` is what may still be visited, in partners of threads that are tried.
    pub(super) fn improve_threads(&mut self, work: &mut u64) -> bool {
        let threads = self.pu.len();
        let pus = self.objective.topology.pus().len();
        let most = threads.div_ceil(pus);
        let mut used = vec![0; pus];
        self.pu.iter().for_each(|pu| used[pu.index()] += 1);
        let mut helped = false;
        let mut best = self.value();
        for a in 0..threads {
            let effort = |search: &Self, other: usize| {
                (search.partners(a).len() + search.partners(other).len() + EFFORT) as u64
            };
            for b in a + 1..threads {
                if self.pu[a] == self.pu[b] || *work == 0 {
                    continue;
                }
                *work = work.saturating_sub(effort(self, b));
                let proposal = self.propose(a, Some(b), self.pu[b]);
                if proposal.value < best * (1.0 - 1e-9) {
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
                let proposal = self.propose(a, None, new);
                if proposal.value < best * (1.0 - 1e-9) {
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

    /// What it would cost if `a` went to `to` and `b`, who is there, to where `a` is.
    fn propose(&mut self, a: usize, b: Option<usize>, to: LogicalPu) -> Proposal {
        let from = self.pu[a];
        let mut latency = self.latency + self.farther(a, b, from, to);
        let mut work = self.work[a];
        if let Some(b) = b {
            latency += self.farther(b, Some(a), to, from);
            work -= self.work[b];
        }
        let (here, there) = (self.busy[from.index()], self.busy[to.index()]);
        let squares = self.squares + 2.0 * work * (there - here + work);
        self.changes.clear();
        let topology = self.objective.topology;
        let (home, away) = (topology.node_of(from).index(), topology.node_of(to).index());
        if home != away {
            latency += self.reroute(a, b, home, away);
        }
        let at_once = working_at_once(self.all_work, squares);
        let waiting = latency / (at_once * self.objective.weights.in_flight);
        Proposal {
            latency,
            squares,
            value: waiting + self.controllers.value() + self.links.value_with(&self.changes),
        }
    }

    /// How much longer `thread` waits for its partners (but `without`) on `to` than on `from`.
    fn farther(
        &self,
        thread: usize,
        without: Option<usize>,
        from: LogicalPu,
        to: LogicalPu,
    ) -> f64 {
        let mut more = 0.0;
        for &(other, events) in self.partners(thread) {
            if Some(other) != without {
                let there = self.pu[other];
                more += events * (self.transfer(to, there) - self.transfer(from, there));
            }
        }
        more
    }

    /// Puts into `changes` what links carry more or less if `a` went from node `home` to `away` and `b`
    /// back; how much longer both wait for memory. Controllers serve the same pages as before.
    fn reroute(&mut self, a: usize, b: Option<usize>, home: usize, away: usize) -> f64 {
        let objective = self.objective;
        let (nodes, weights) = (objective.nodes(), &objective.weights);
        let between = b.map_or(0.0, |b| self.events_between(a, b));
        let mut latency = 0.0;
        for node in 0..nodes {
            let lines = |search: &Self, thread: usize| {
                search.by_memory[thread * nodes + node] * weights.memory_share
            };
            let exchanged = |search: &Self, thread: usize| search.by_partner[thread * nodes + node];
            let mut moved = lines(self, a);
            let mut events = exchanged(self, a);
            if let Some(b) = b {
                moved -= lines(self, b);
                events -= exchanged(self, b);
                // The two keep their distance: what they exchange stays where it is.
                if node == away {
                    events -= between;
                } else if node == home {
                    events += between;
                }
            }
            if moved != 0.0 {
                latency +=
                    moved * (objective.memory_s(away, node) - objective.memory_s(home, node));
                self.carry(node, home, -moved);
                self.carry(node, away, moved);
            }
            if events != 0.0 {
                for (place, lines) in [(home, -0.5 * events), (away, 0.5 * events)] {
                    self.carry(place, node, lines);
                    self.carry(node, place, lines);
                }
            }
        }
        latency
    }

    /// `lines` more on the links from node `from` to node `to`.
    fn carry(&mut self, from: usize, to: usize, lines: f64) {
        let objective = self.objective;
        let bytes = lines * objective.weights.line_bytes;
        for &link in objective.route(from, to) {
            self.changes
                .add(link, bytes / objective.link_bytes_per_s[link]);
        }
    }

    /// Does what was just proposed.
    fn accept(&mut self, a: usize, b: Option<usize>, to: LogicalPu, proposal: &Proposal) {
        let from = self.pu[a];
        self.seat(a, to);
        if let Some(b) = b {
            self.seat(b, from);
        }
        self.latency = proposal.latency;
        self.squares = proposal.squares;
        self.links.apply(&self.changes);
    }

    fn seat(&mut self, thread: usize, to: LogicalPu) {
        let nodes = self.objective.nodes();
        let home = self.home(thread);
        self.busy[self.pu[thread].index()] -= self.work[thread];
        self.busy[to.index()] += self.work[thread];
        self.pu[thread] = to;
        let away = self.home(thread);
        for &(other, events) in self.partners(thread) {
            self.by_partner[other * nodes + home] -= events;
            self.by_partner[other * nodes + away] += events;
        }
    }

    /// Moves pages, in the given order, to the node where the whole is cheapest. Whether any moved.
    pub(super) fn improve_pages(&mut self, order: &[usize], candidates: &[LogicalNode]) -> bool {
        let nodes = self.objective.nodes();
        let mut from = vec![0_u64; nodes];
        let mut helped = false;
        for &at in order {
            let Some(old) = self.node[at] else { continue };
            let page = &self.usage.pages()[at];
            let topology = self.objective.topology;
            self.usage.by_node(
                page,
                |t| topology.node_of(self.pu[t.index()]).index(),
                &mut from,
            );
            let before = self.value();
            let (mut best, mut least) = (old, before * (1.0 - 1e-9));
            self.shift(&from, old, -1.0);
            for &node in candidates {
                if node == old || self.room[node.index()] == 0 {
                    continue;
                }
                self.shift(&from, node, 1.0);
                let value = self.value();
                if value < least {
                    (best, least) = (node, value);
                }
                self.shift(&from, node, -1.0);
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

/// PUs x PUs seconds for a line, where that takes at most 32 MiB: asking the tree costs a walk up it.
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

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        /// What is proposed is what comes out, from scratch: 8 threads on 12 PUs of 3 nodes.
        #[test]
        fn a_proposal_is_worth_what_it_says(
            cells in prop::collection::vec((0_usize..8, 0_usize..8, 1_u32..100), 0..40),
            table in prop::collection::vec(prop::collection::vec((0_u32..8, 1_u64..2000), 1..4), 1..20),
            moves in prop::collection::vec((0_usize..8, 0_usize..8, 8_u32..12, any::<bool>()), 1..12),
        ) {
            let topology = numaloc_topology::resolve("numa:3 core:2 pu:2").unwrap();
            let cells = cells.into_iter().filter(|(a, b, _)| a != b);
            let comm = CommMatrix::from_cells(8, cells.map(|(a, b, w)| (a, b, f64::from(w)))).unwrap();
            let rows: Vec<&[(u32, u64)]> = table.iter().map(|row| &row[..]).collect();
            let pages = usage(&rows);
            let objective = Objective::new(&topology, &comm, Weights::default());
            let node: Vec<_> = (0..rows.len()).map(|p| Some(LogicalNode::from_index(p % 3))).collect();
            let pu: Vec<_> = (0..8).map(LogicalPu).collect();
            let fresh = |pu: &[LogicalPu]| Search::new(&objective, &pages, &[99; 3], pu, &node);
            let mut search = fresh(&pu);
            for (a, b, free, exchange) in moves {
                let (b, to) = match exchange {
                    true if a == b => continue,
                    true => (Some(b), search.pu[b]),
                    false if search.pu.contains(&LogicalPu(free)) => continue,
                    false => (None, LogicalPu(free)),
                };
                let proposal = search.propose(a, b, to);
                search.accept(a, b, to, &proposal);
                let expected = fresh(&search.pu).value();
                for value in [proposal.value, search.value()] {
                    prop_assert!((value - expected).abs() <= 1e-6 * expected, "{value} {expected}");
                }
            }
        }
    }
}
