//! Where pages are, and where lines that threads exchange are asked for.
//!
//! A line that another last-level cache has written is asked for at the node of its page, which forwards the request,
//! and it is written back there. Events carry no page: the pages of a pair of threads are taken to be distributed over
//! the nodes like those that one of them stores to and the other one loads.

use numaloc_analysis::local::Home;
use numaloc_model::LogicalNode;

use super::demand::Demand;
use super::figures::{Figures, Seat};

/// Where pages and threads are.
pub(super) struct Places<'a> {
    /// By page.
    pub homes: &'a [Home],
    /// By page: whether each node has a copy; none if empty.
    pub is_copied: &'a [bool],
    /// By thread.
    pub seats: &'a [Seat],
}

impl Places<'_> {
    /// Where a thread's lines of a page come from.
    pub(super) fn home(&self, page: usize, thread: usize) -> Home {
        match self.is_copied.get(page) {
            Some(true) => Home::Node(LogicalNode::from_index(self.seats[thread].node)),
            _ => self.homes[page],
        }
    }
}

/// Nodes of the pages through which threads exchange lines.
pub(super) struct Passages {
    nodes: usize,
    /// Threads x nodes: lines stored, and loaded.
    stored: Vec<f32>,
    loaded: Vec<f32>,
}

impl Passages {
    pub(super) fn of(demand: &Demand, places: &Places, anywhere: &[usize], nodes: usize) -> Self {
        let mut found = Self {
            nodes,
            stored: vec![0.0; demand.threads * nodes],
            loaded: vec![0.0; demand.threads * nodes],
        };
        for at in &demand.passages {
            let (thread, page) = (at.thread as usize, at.page as usize);
            let mut add = |node: usize, part: f32| {
                found.stored[thread * nodes + node] += at.stored as f32 * part;
                found.loaded[thread * nodes + node] += at.loaded as f32 * part;
            };
            match places.home(page, thread) {
                Home::Node(node) => add(node.index(), 1.0),
                Home::Anywhere => {
                    let part = 1.0 / anywhere.len().max(1) as f32;
                    anywhere.iter().for_each(|&node| add(node, part));
                }
            }
        }
        found
    }

    /// Lines that a thread stored by the node of their page; all zero if unknown.
    pub(super) fn stored(&self, thread: usize) -> &[f32] {
        &self.stored[thread * self.nodes..][..self.nodes]
    }

    /// Seconds by which a request to the cache of thread `src` on node `from` takes longer by way of the pages' nodes.
    pub(super) fn detour_s(
        &self,
        figures: &Figures,
        src: (usize, usize),
        dst: (usize, usize),
    ) -> f64 {
        let ((src, from), (dst, to)) = (src, dst);
        let loaded = &self.loaded[dst * self.nodes..][..self.nodes];
        let request_s = |a: usize, b: usize| figures.request_s[a * self.nodes + b];
        // Pages of both: those that one stores to and the other loads.
        let mean_s = |weight: &dyn Fn(usize) -> f32| {
            let (mut sum_s, mut all) = (0.0, 0.0);
            for node in 0..self.nodes {
                let part = f64::from(weight(node));
                if part > 0.0 {
                    all += part;
                    sum_s += part * (request_s(to, node) + request_s(node, from));
                }
            }
            (all > 0.0).then(|| sum_s / all)
        };
        let stored = self.stored(src);
        let way_s =
            mean_s(&|node| stored[node] * loaded[node]).or_else(|| mean_s(&|node| stored[node]));
        way_s.map_or(0.0, |way_s| way_s - request_s(to, from))
    }
}
