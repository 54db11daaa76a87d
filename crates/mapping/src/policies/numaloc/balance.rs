//! Loads of nodes as a cost in addition to J.
//!
//! Every node should have an equal share of the load vector. The cost is the sum over nodes of the squared load, which
//! is smallest when the loads are equal.

use super::anneal::{EMPTY_SEAT, Problem, Seating, Side};

/// The load of every task.
pub(super) struct Loads {
    nodes: usize,
    by_task: Vec<f64>,
}

impl Loads {
    pub(super) fn new(by_task: &[f64], nodes: usize) -> Self {
        Self {
            nodes,
            by_task: by_task.to_vec(),
        }
    }

    /// The loads of clusters of tasks.
    pub(super) fn merged(&self, clusters: &[Vec<u32>]) -> Self {
        let sum = |tasks: &Vec<u32>| tasks.iter().map(|&task| self.of(task)).sum();
        Self {
            nodes: self.nodes,
            by_task: clusters.iter().map(sum).collect(),
        }
    }

    #[inline]
    fn of(&self, task: u32) -> f64 {
        match task {
            EMPTY_SEAT => 0.0,
            task => self.by_task[task as usize],
        }
    }

    /// Mean square of a load: the unit of the cost.
    pub(super) fn unit(&self) -> f64 {
        let sum: f64 = self.by_task.iter().map(|load| load * load).sum();
        sum / self.by_task.len().max(1) as f64
    }

    fn sums(&self, problem: &Problem, seating: &Seating) -> Vec<f64> {
        let mut sums = vec![0.0; self.nodes];
        for (load, &seat) in self.by_task.iter().zip(&seating.seat_of) {
            sums[problem.seat_node[seat as usize] as usize] += load;
        }
        sums
    }
}

/// The cost of unequal loads during a search.
pub(super) struct Levelling<'a> {
    loads: &'a Loads,
    node: &'a [u32],
    sums: Vec<f64>,
    price: f64,
}

impl<'a> Levelling<'a> {
    /// `price` is the cost of one unit of squared load, in units of J.
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
}

impl Side for Levelling<'_> {
    const MAY_LEAVE_PARTNERS: bool = true;

    #[inline]
    fn delta(&self, u: u32, v: u32, su: u32, sv: u32) -> f64 {
        let (from, to) = (
            self.node[su as usize] as usize,
            self.node[sv as usize] as usize,
        );
        if from == to {
            return 0.0;
        }
        let more = self.loads.of(u) - self.loads.of(v);
        self.price * 2.0 * more * (self.sums[to] - self.sums[from] + more)
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
        let more = self.loads.of(u) - self.loads.of(v);
        self.sums[from] -= more;
        self.sums[to] += more;
    }
}
