//! Changes of pages: each to the node where the solution costs least.

use numaloc_model::LogicalNode;

use super::Search;

impl Search<'_> {
    /// Moves pages, in the given order, to the node with the lowest total cost. Returns whether any moved.
    pub(in crate::joint) fn improve_pages(
        &mut self,
        order: &[usize],
        candidates: &[LogicalNode],
    ) -> bool {
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
        let value = self.waiting(latency, self.busy.squares()) + controllers;
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
