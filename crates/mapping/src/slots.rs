//! Capacities of PUs, including over- and under-subscription, the same for every policy.
//!
//! With fewer tasks than PUs, the papers' algorithms differ without saying so (TreeMatch compacts, EagerMap and Scotch
//! spread); here it is [`Spread`], a choice of the user. With more tasks than PUs every PU takes floor(N/P) or
//! ceil(N/P) tasks, distributed down the tree in proportion to the PUs below each object.

use numaloc_model::{LogicalNode, LogicalPu};
use numaloc_topology::Topology;
use std::ops::Range;

/// Which PUs stay empty when there are fewer tasks than PUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// Tasks spread evenly over the whole machine: all memory controllers, then all cores.
    Spread,
    /// Tasks fill the first PUs, depth first: as few nodes as possible.
    Compact,
    /// All PUs are available, and each policy uses those that its paper would.
    #[default]
    Auto,
    /// As `Auto`, but one PU of each core, while there are as many cores as tasks: for tasks that compute, which a
    /// sibling slows down.
    Cores,
}

/// Capacity of every PU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slots {
    /// Tasks by PU (logical index); sums to at least the number of tasks.
    capacity: Vec<u32>,
}

impl Slots {
    /// Capacities for `tasks` tasks. They sum to exactly `tasks`, except under [`Spread::Auto`] with
    /// fewer tasks than PUs, where each PU may take one.
    #[must_use]
    pub fn new(topology: &Topology, tasks: usize, spread: Spread) -> Self {
        let pus = topology.pus().len();
        let capacity = match spread {
            Spread::Auto if tasks < pus => vec![1; pus],
            Spread::Compact if tasks < pus => (0..pus).map(|pu| u32::from(pu < tasks)).collect(),
            Spread::Cores if tasks <= cores(topology) => first_of_each_core(topology),
            Spread::Cores => return Self::new(topology, tasks, Spread::Auto),
            _ => {
                let mut capacity = vec![0; pus];
                deal(topology, 0, tasks, &mut capacity);
                capacity
            }
        };
        Self { capacity }
    }

    /// Only the first seats, depth first, as many as there are tasks.
    #[must_use]
    pub(crate) fn first(mut self, tasks: usize) -> Self {
        let mut left = tasks as u32;
        for capacity in &mut self.capacity {
            *capacity = left.min(*capacity);
            left -= *capacity;
        }
        self
    }

    /// Tasks by PU.
    #[must_use]
    pub fn capacity(&self) -> &[u32] {
        &self.capacity
    }

    /// Total capacity of all PUs.
    #[must_use]
    pub fn total(&self) -> usize {
        self.capacity.iter().map(|&c| c as usize).sum()
    }
}

/// Number of cores with PUs.
fn cores(topology: &Topology) -> usize {
    first_of_each_core(topology).into_iter().sum::<u32>() as usize
}

fn first_of_each_core(topology: &Topology) -> Vec<u32> {
    let mut last = None;
    let first = topology.pus().iter().map(|pu| {
        let first = last.replace(pu.core) != Some(pu.core);
        u32::from(first)
    });
    first.collect()
}

/// Largest remainders, ties to the first child: 5 tasks on 4 equal children are 2, 1, 1, 1.
fn deal(topology: &Topology, object: u32, tasks: usize, capacity: &mut [u32]) {
    let object = &topology.objects()[object as usize];
    if object.children.is_empty() {
        capacity[object.pus.start as usize] = tasks as u32;
        return;
    }
    let width = |range: &Range<u32>| (range.end - range.start) as usize;
    let below = width(&object.pus).max(1);
    let child_pus = |&child: &u32| width(&topology.objects()[child as usize].pus);
    let mut share: Vec<usize> = object
        .children
        .iter()
        .map(|child| tasks * child_pus(child) / below)
        .collect();
    let mut by_remainder: Vec<usize> = (0..share.len()).collect();
    by_remainder.sort_by_key(|&at| {
        (
            std::cmp::Reverse(tasks * child_pus(&object.children[at]) % below),
            at,
        )
    });
    let remaining = tasks - share.iter().sum::<usize>();
    for &at in by_remainder.iter().take(remaining) {
        share[at] += 1;
    }
    for (&child, tasks) in object.children.iter().zip(share) {
        if tasks > 0 {
            deal(topology, child, tasks, capacity);
        }
    }
}

/// PUs of a node in the order a scheduler would fill it: one PU of every core, then their siblings.
#[must_use]
pub fn cores_first(topology: &Topology, node: LogicalNode) -> Vec<LogicalPu> {
    let pus = &topology.nodes()[node.index()].pus;
    let mut order: Vec<(usize, LogicalPu)> = Vec::with_capacity(pus.len());
    let (mut core, mut sibling) = (u32::MAX, 0);
    for &pu in pus {
        let its = topology.pus()[pu.index()].core;
        sibling = if its == core { sibling + 1 } else { 0 };
        core = its;
        order.push((sibling, pu));
    }
    order.sort();
    order.into_iter().map(|(_, pu)| pu).collect()
}

/// Free seats of nodes, handed out one at a time, for the node-filling policies.
pub(crate) struct Seats {
    /// By node: PUs in filling order, with free seats.
    nodes: Vec<(LogicalNode, Vec<(LogicalPu, u32)>)>,
    free: Vec<usize>,
}

impl Seats {
    /// Seats of the nodes that have PUs, in tree order.
    pub(crate) fn new(topology: &Topology, slots: &Slots) -> Self {
        let nodes: Vec<(LogicalNode, Vec<(LogicalPu, u32)>)> = topology
            .nodes_with_pus()
            .into_iter()
            .map(|node| {
                let pus = cores_first(topology, node);
                let seats = pus
                    .into_iter()
                    .map(|pu| (pu, slots.capacity[pu.index()]))
                    .collect();
                (node, seats)
            })
            .collect();
        let free = nodes
            .iter()
            .map(|(_, pus)| pus.iter().map(|&(_, seats)| seats as usize).sum())
            .collect();
        Self { nodes, free }
    }

    /// Number of nodes with PUs; positions below refer to this list.
    pub(crate) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// The node at a position.
    pub(crate) fn node(&self, at: usize) -> LogicalNode {
        self.nodes[at].0
    }

    /// Free seats of a node.
    pub(crate) fn free(&self, at: usize) -> usize {
        self.free[at]
    }

    /// First node from `from` on, wrapping round, with at least `seats` free seats.
    pub(crate) fn next_with(&self, from: usize, seats: usize) -> Option<usize> {
        let n = self.nodes();
        (0..n)
            .map(|step| (from + step) % n)
            .find(|&at| self.free[at] >= seats)
    }

    /// Takes a seat: the emptiest PU first, so that all have one task before any has two.
    ///
    /// # Panics
    /// If the node is full.
    pub(crate) fn take(&mut self, at: usize) -> LogicalPu {
        let most = self.nodes[at].1.iter().map(|&(_, seats)| seats).max();
        let most = most.expect("a node with PUs");
        assert!(most > 0, "the node is full");
        let seat = self.nodes[at]
            .1
            .iter_mut()
            .find(|(_, seats)| *seats == most);
        let (pu, seats) = seat.expect("the maximum is there");
        *seats -= 1;
        self.free[at] -= 1;
        *pu
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaloc_topology::resolve;

    fn capacity(spec: &str, tasks: usize, spread: Spread) -> Vec<u32> {
        Slots::new(&resolve(spec).unwrap(), tasks, spread).capacity
    }

    #[test]
    fn fewer_tasks_spread_compact_or_free() {
        let spec = "package:2 numa:2 core:1 pu:2";
        assert_eq!(capacity(spec, 3, Spread::Spread), [1, 0, 1, 0, 1, 0, 0, 0]);
        assert_eq!(capacity(spec, 3, Spread::Compact), [1, 1, 1, 0, 0, 0, 0, 0]);
        assert_eq!(capacity(spec, 3, Spread::Auto), [1; 8]);
    }

    #[test]
    fn more_tasks_fill_evenly() {
        for spread in [Spread::Spread, Spread::Compact, Spread::Auto] {
            assert_eq!(capacity("numa:2 core:2 pu:1", 6, spread), [2, 1, 2, 1]);
        }
    }

    #[test]
    fn a_core_for_each_task_while_there_are_as_many() {
        let spec = "numa:2 core:2 pu:2";
        let one_a_core = [1, 0, 1, 0, 1, 0, 1, 0];
        assert_eq!(capacity(spec, 3, Spread::Cores), one_a_core);
        assert_eq!(capacity(spec, 4, Spread::Cores), one_a_core);
        assert_eq!(capacity(spec, 5, Spread::Cores), [1; 8]);
        let slots = Slots::new(&resolve(spec).unwrap(), 3, Spread::Cores);
        assert_eq!(slots.first(3).capacity, [1, 0, 1, 0, 1, 0, 0, 0]);
    }

    #[test]
    fn siblings_come_last() {
        let order = cores_first(&resolve("numa:1 core:3 pu:2").unwrap(), LogicalNode(0));
        assert_eq!(
            order.iter().map(|pu| pu.0).collect::<Vec<_>>(),
            [0, 2, 4, 1, 3, 5]
        );
    }
}
