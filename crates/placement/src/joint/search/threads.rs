//! Changes of threads: exchanges of two, and moves to a PU with room.

use numaloc_model::LogicalPu;

use super::Search;

/// Fixed cost of a proposal, in partners visited.
const EFFORT: usize = 64;

/// Effect of a proposed change of seats.
pub(super) struct Proposal {
    latency: f64,
    pub(super) value: f64,
}

impl Search<'_> {
    /// Tries every exchange of two threads and every move to a PU with room, and accepts those that help. Returns
    /// whether any did. `work` is the remaining budget, in partners visited.
    pub(in crate::joint) fn improve_threads(&mut self, work: &mut u64) -> bool {
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
    pub(super) fn propose(
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
        let squares = self.busy.squares_with(from, to, work);
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
        (value < limit).then_some(Proposal { latency, value })
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

    /// Applies the last proposal.
    pub(super) fn accept(
        &mut self,
        a: usize,
        b: Option<usize>,
        to: LogicalPu,
        proposal: &Proposal,
    ) {
        let from = self.pu[a];
        self.seat(a, to);
        if let Some(b) = b {
            self.seat(b, from);
        }
        self.latency = proposal.latency;
        self.links.apply(&self.changes);
        self.recount_parts();
    }

    fn seat(&mut self, thread: usize, to: LogicalPu) {
        let nodes = self.objective.nodes();
        let home = self.home(thread);
        let from = self.pu[thread];
        self.busy.shift(from, to, self.work[thread]);
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

    fn events_between(&self, a: usize, b: usize) -> f64 {
        let partners = self.partners(a);
        let at = partners.binary_search_by_key(&b, |&(other, _)| other);
        at.map_or(0.0, |at| partners[at].1)
    }
}
