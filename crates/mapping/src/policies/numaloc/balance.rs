//! Loads of nodes as a cost beside J: memory controllers and concurrent traffic.
//!
//! A dimension is something every node should have equally much of: the load vector is one, and every
//! group of concurrent communication is one more, in which a task weighs half of what its pairs
//! exchange in that group (half of a pair's traffic at either end). The cost is the sum of squares over
//! dimensions and nodes, which is smallest when every dimension is level.

use super::anneal::{NOBODY, Problem, Seating, Side};
use crate::policy::MapInput;

/// What every task brings to every dimension.
pub(super) struct Loads {
    nodes: usize,
    /// How many dimensions are groups; the load vector, if any, comes after them.
    groups: usize,
    dimensions: usize,
    /// By task: where its entries start.
    start: Vec<u32>,
    /// `(dimension, amount)`, by ascending dimension.
    entries: Vec<(u32, f64)>,
}

impl Loads {
    /// `None` when there is nothing to balance.
    pub(super) fn new(input: &MapInput) -> Option<Self> {
        let groups = input.groups();
        if groups.is_empty() && input.load().is_none() {
            return None;
        }
        let tasks = input.tasks();
        let mut by_task: Vec<Vec<(u32, f64)>> = vec![Vec::new(); tasks];
        for (group, pairs) in groups.iter().enumerate() {
            for pair in &pairs.pairs {
                for task in [pair.a, pair.b] {
                    let entries = &mut by_task[task.index()];
                    match entries.last_mut() {
                        Some((last, amount)) if *last == group as u32 => {
                            *amount += pair.in_group / 2.0;
                        }
                        _ => entries.push((group as u32, pair.in_group / 2.0)),
                    }
                }
            }
        }
        if let Some(load) = input.load() {
            for (entries, &load) in by_task.iter_mut().zip(load) {
                entries.push((groups.len() as u32, load));
            }
        }
        let mut loads = Self {
            start: vec![0],
            entries: Vec::new(),
            nodes: input.topology().nodes().len(),
            groups: groups.len(),
            dimensions: groups.len() + usize::from(input.load().is_some()),
        };
        for entries in by_task {
            loads.entries.extend(entries);
            loads.start.push(loads.entries.len() as u32);
        }
        Some(loads)
    }

    /// Clusters of tasks as tasks.
    pub(super) fn merged(&self, clusters: &[Vec<u32>]) -> Self {
        let mut merged = Self {
            nodes: self.nodes,
            groups: self.groups,
            dimensions: self.dimensions,
            start: vec![0],
            entries: Vec::new(),
        };
        for cluster in clusters {
            let mut sums = std::collections::BTreeMap::new();
            for &(dimension, amount) in cluster.iter().flat_map(|&task| self.of(task)) {
                *sums.entry(dimension).or_insert(0.0) += amount;
            }
            merged.entries.extend(sums);
            merged.start.push(merged.entries.len() as u32);
        }
        merged
    }

    fn of(&self, task: u32) -> &[(u32, f64)] {
        let task = task as usize;
        &self.entries[self.start[task] as usize..self.start[task + 1] as usize]
    }

    /// Mean square of an entry: the unit of the cost.
    pub(super) fn unit(&self) -> f64 {
        let sum: f64 = self.entries.iter().map(|(_, amount)| amount * amount).sum();
        sum / self.entries.len().max(1) as f64
    }

    fn sums(&self, problem: &Problem, seating: &Seating) -> Vec<f64> {
        let mut sums = vec![0.0; self.dimensions * self.nodes];
        for task in 0..problem.tasks() {
            let node = problem.seat_node[seating.seat_of[task] as usize] as usize;
            for &(dimension, amount) in self.of(task as u32) {
                sums[dimension as usize * self.nodes + node] += amount;
            }
        }
        sums
    }

    /// How unlevel a seating is, 0 for perfect: standard deviation of the load over its mean, plus the
    /// worst concurrent traffic on a node over the largest mean of a group, less 1.
    pub(super) fn unlevel(&self, problem: &Problem, seating: &Seating, used: usize) -> f64 {
        let sums = self.sums(problem, seating);
        let mut unlevel = 0.0;
        let (mut worst, mut largest_mean) = (0.0, 0.0);
        for (dimension, sums) in sums.chunks(self.nodes).enumerate() {
            let mean = sums.iter().sum::<f64>() / used as f64;
            if dimension < self.groups {
                worst = sums.iter().copied().fold(worst, f64::max);
                largest_mean = f64::max(largest_mean, mean);
            } else if mean > 0.0 {
                // Nodes without PUs hold nothing and do not count.
                let squares: f64 = sums.iter().map(|s| s * s).sum();
                unlevel += (squares / used as f64 - mean * mean).max(0.0).sqrt() / mean;
            }
        }
        if largest_mean > 0.0 {
            unlevel += worst / largest_mean - 1.0;
        }
        unlevel
    }
}

/// The cost of unlevel loads during a search.
pub(super) struct Levelling<'a> {
    loads: &'a Loads,
    node: &'a [u32],
    sums: Vec<f64>,
    price: f64,
}

impl<'a> Levelling<'a> {
    /// `price` is what one unit of squared load costs, in units of J.
    pub(super) fn new(
        loads: &'a Loads,
        problem: &'a Problem,
        seating: &Seating,
        price: f64,
    ) -> Self {
        Self {
            loads,
            node: &problem.seat_node,
            sums: loads.sums(problem, seating),
            price,
        }
    }

    /// Calls `each` with every dimension and how much more `u` brings to it than `v`.
    #[inline]
    fn differences(&self, u: u32, v: u32, mut each: impl FnMut(usize, f64)) {
        let ours = self.loads.of(u);
        let theirs = if v == NOBODY {
            &[][..]
        } else {
            self.loads.of(v)
        };
        let (mut i, mut j) = (0, 0);
        while i < ours.len() || j < theirs.len() {
            let a = ours.get(i).map_or(u32::MAX, |e| e.0);
            let b = theirs.get(j).map_or(u32::MAX, |e| e.0);
            let mut difference = 0.0;
            if a <= b {
                difference += ours[i].1;
                i += 1;
            }
            if b <= a {
                difference -= theirs[j].1;
                j += 1;
            }
            each(a.min(b) as usize, difference);
        }
    }
}

impl Side for Levelling<'_> {
    const WANDERS: bool = true;

    #[inline]
    fn delta(&self, u: u32, v: u32, su: u32, sv: u32) -> f64 {
        let (from, to) = (
            self.node[su as usize] as usize,
            self.node[sv as usize] as usize,
        );
        if from == to {
            return 0.0;
        }
        let mut delta = 0.0;
        self.differences(u, v, |dimension, more| {
            let sums = &self.sums[dimension * self.loads.nodes..][..self.loads.nodes];
            delta += 2.0 * more * (sums[to] - sums[from] + more);
        });
        self.price * delta
    }

    #[inline]
    fn apply(&mut self, u: u32, v: u32, su: u32, sv: u32) {
        let (from, to) = (
            self.node[su as usize] as usize,
            self.node[sv as usize] as usize,
        );
        if from == to {
            return;
        }
        let mut sums = std::mem::take(&mut self.sums);
        self.differences(u, v, |dimension, more| {
            sums[dimension * self.loads.nodes + from] -= more;
            sums[dimension * self.loads.nodes + to] += more;
        });
        self.sums = sums;
    }
}
