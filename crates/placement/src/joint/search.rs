//! Local search on threads and pages together.
//!
//! The maxima of the objective are flat where two controllers or links are equally busy, so the search
//! steers by a smooth stand-in, the 16-norm of the loads (never below the maximum). What it visits is
//! judged by the objective itself. All sums are kept as running totals; a step costs O(accessing nodes x
//! hops) for a page and O(nodes x hops + partners) for a thread.

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
        self.scale * self.sum.max(0.0).powf(1.0 / f64::from(POWER))
    }
}

/// Threads and pages somewhere, and what that costs.
pub(super) struct Search<'a> {
    objective: &'a Objective<'a>,
    usage: &'a PageUsage,
    pu: Vec<LogicalPu>,
    node: Vec<Option<LogicalNode>>,
    /// Threads x nodes: accesses of a thread to pages of a node.
    by_memory: Vec<f64>,
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
        self.latency = 0.0;
        self.busy.fill(0.0);
        self.squares = 0.0;
        for norm in [&mut self.controllers, &mut self.links] {
            norm.load.fill(0.0);
            norm.sum = 0.0;
        }
        for thread in 0..self.pu.len() {
            self.occupy(thread, 1.0);
            self.count_memory(thread, 1.0);
            self.count_partners(thread, 0.5, usize::MAX);
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

    /// `accesses` more (or fewer) from a core of node `core` to memory of node `memory`.
    fn count(&mut self, core: usize, memory: usize, accesses: f64) {
        let weights = &self.objective.weights;
        let lines = accesses * weights.memory_share;
        self.latency += lines * self.objective.memory_s(core, memory);
        let bytes = lines * weights.line_bytes;
        self.controllers
            .add(memory, bytes / weights.controller_bytes_per_s);
        for &link in self.objective.route(memory, core) {
            self.links
                .add(link, bytes / self.objective.link_bytes_per_s[link]);
        }
    }

    fn count_memory(&mut self, thread: usize, sign: f64) {
        let (nodes, core) = (self.objective.nodes(), self.home(thread));
        for memory in 0..nodes {
            let accesses = self.by_memory[thread * nodes + memory];
            if accesses != 0.0 {
                self.count(core, memory, sign * accesses);
            }
        }
    }

    /// Communication of a thread with all others but `without`, `sign` times.
    fn count_partners(&mut self, thread: usize, sign: f64, without: usize) {
        let objective = self.objective;
        let home = self.home(thread);
        for &(other, events) in objective.partners.get(thread).map_or(&[][..], |p| p) {
            if other == without || other >= self.pu.len() {
                continue;
            }
            let events = sign * events;
            self.latency += events * objective.transfer_s(self.pu[thread], self.pu[other]);
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

    fn occupy(&mut self, thread: usize, sign: f64) {
        let busy = &mut self.busy[self.pu[thread].index()];
        self.squares -= *busy * *busy;
        *busy += sign * self.work[thread];
        self.squares += *busy * *busy;
    }

    fn put(&mut self, thread: usize, sign: f64, without: usize) {
        self.occupy(thread, sign);
        self.count_memory(thread, sign);
        self.count_partners(thread, sign, without);
    }

    /// Tries every exchange of two threads and every move to a PU with room; takes what helps. Whether
    /// anything did. `steps` is what may still be tried.
    pub(super) fn improve_threads(&mut self, steps: &mut u64) -> bool {
        let threads = self.pu.len();
        let pus = self.objective.topology.pus().len();
        let most = threads.div_ceil(pus);
        let mut used = vec![0; pus];
        self.pu.iter().for_each(|pu| used[pu.index()] += 1);
        let mut helped = false;
        let mut best = self.value();
        for a in 0..threads {
            for b in a + 1..threads {
                if self.pu[a] == self.pu[b] || *steps == 0 {
                    continue;
                }
                *steps -= 1;
                self.exchange(a, b);
                let value = self.value();
                if value < best * (1.0 - 1e-9) {
                    (best, helped) = (value, true);
                } else {
                    self.exchange(a, b);
                }
            }
            for free in 0..pus {
                if used[free] >= most || *steps == 0 {
                    continue;
                }
                *steps -= 1;
                let old = self.pu[a];
                self.relocate(a, LogicalPu::from_index(free));
                let value = self.value();
                if value < best * (1.0 - 1e-9) {
                    used[old.index()] -= 1;
                    used[free] += 1;
                    (best, helped) = (value, true);
                } else {
                    self.relocate(a, old);
                }
            }
        }
        self.recount();
        helped
    }

    fn exchange(&mut self, a: usize, b: usize) {
        self.put(a, -1.0, usize::MAX);
        self.put(b, -1.0, a);
        self.pu.swap(a, b);
        self.put(b, 1.0, a);
        self.put(a, 1.0, usize::MAX);
    }

    fn relocate(&mut self, thread: usize, pu: LogicalPu) {
        self.put(thread, -1.0, usize::MAX);
        self.pu[thread] = pu;
        self.put(thread, 1.0, usize::MAX);
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
    }
}
