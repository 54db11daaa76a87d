//! Relabels a mapping so that few threads change their node, without making it worse.
//!
//! A policy computes a phase's mapping from scratch. On a machine with equal nodes any exchange of nodes is as good;
//! the one chosen here keeps most threads next to the pages they have used so far. Greedy: exchanges whole nodes, then
//! PUs within nodes, as long as more threads stay and the cost by distance does not grow. Time: O(nodes² + threads)
//! times O(cells) for each round; at most [`ROUNDS`] rounds.

use numaloc_model::{CommMatrix, LogicalPu};
use numaloc_topology::Topology;

/// Rounds of exchanging nodes.
const ROUNDS: usize = 8;

/// The mapping `new` (a PU for each thread) with nodes and PUs exchanged so that more threads stay where `before` has
/// them. `comm` is the communication that its cost is computed by.
#[must_use]
pub fn aligned(
    before: &[LogicalPu],
    new: Vec<LogicalPu>,
    comm: &CommMatrix,
    machine: &Topology,
) -> Vec<LogicalPu> {
    let mut search = Search {
        before,
        comm,
        machine,
        cost: 0.0,
        pu: new,
    };
    search.cost = search.cost_of(&search.pu);
    let nodes = machine.nodes().len();
    for _ in 0..ROUNDS {
        let mut improved = false;
        for a in 0..nodes {
            for b in a + 1..nodes {
                improved |= search.exchange_nodes(a, b);
            }
        }
        if !improved {
            break;
        }
    }
    for thread in 0..search.pu.len() {
        search.keep_pu(thread);
    }
    search.pu
}

struct Search<'a> {
    before: &'a [LogicalPu],
    comm: &'a CommMatrix,
    machine: &'a Topology,
    cost: f64,
    pu: Vec<LogicalPu>,
}

impl Search<'_> {
    fn cost_of(&self, pu: &[LogicalPu]) -> f64 {
        let cells = self.comm.cells().filter(|(src, dst, _)| src != dst);
        cells
            .map(|(src, dst, amount)| amount * self.machine.distance(pu[src], pu[dst]))
            .sum()
    }

    /// Threads that keep their node.
    fn stay(&self, pu: &[LogicalPu]) -> usize {
        let node = |pu: LogicalPu| self.machine.node_of(pu);
        let both = self.before.iter().zip(pu);
        both.filter(|&(&a, &b)| node(a) == node(b)).count()
    }

    /// Takes over `pu` if it costs no more.
    fn take(&mut self, pu: Vec<LogicalPu>) -> bool {
        let cost = self.cost_of(&pu);
        let better = cost <= self.cost * (1.0 + 1e-12);
        if better {
            (self.pu, self.cost) = (pu, cost);
        }
        better
    }

    /// Exchanges the threads of two nodes of equal size, if more threads then keep their node.
    fn exchange_nodes(&mut self, a: usize, b: usize) -> bool {
        let (one, other) = (&self.machine.nodes()[a].pus, &self.machine.nodes()[b].pus);
        if one.len() != other.len() {
            return false;
        }
        let exchanged = |pu: &LogicalPu| {
            let in_one = one.iter().position(|at| at == pu).map(|at| other[at]);
            let in_other = || other.iter().position(|at| at == pu).map(|at| one[at]);
            in_one.or_else(in_other).unwrap_or(*pu)
        };
        let pu: Vec<LogicalPu> = self.pu.iter().map(exchanged).collect();
        self.stay(&pu) > self.stay(&self.pu) && self.take(pu)
    }

    /// Leaves a thread that keeps its node on its PU, in exchange with a thread that is there and does not stay.
    fn keep_pu(&mut self, thread: usize) {
        let (was, is) = (self.before[thread], self.pu[thread]);
        if was == is || self.machine.node_of(was) != self.machine.node_of(is) {
            return;
        }
        let mut there = (0..self.pu.len()).filter(|&other| self.pu[other] == was);
        let mut pu = self.pu.clone();
        pu[thread] = was;
        match there.clone().next() {
            None => {}
            Some(_) => match there.find(|&other| self.before[other] != was) {
                Some(other) => pu[other] = is,
                None => return,
            },
        }
        self.take(pu);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pus(of: &[u32]) -> Vec<LogicalPu> {
        of.iter().map(|&pu| LogicalPu(pu)).collect()
    }

    fn pairs(threads: usize, pairs: &[(usize, usize)]) -> CommMatrix {
        let cells = pairs.iter().map(|&(a, b)| (a, b, 10.0));
        CommMatrix::from_cells(threads, cells).unwrap()
    }

    #[test]
    fn exchanged_nodes_and_pus_are_the_same_mapping() {
        let machine = numaloc_topology::resolve("numa:2 core:2 pu:1").unwrap();
        let comm = pairs(4, &[(0, 1), (2, 3)]);
        // The same pairs on the other nodes, one pair in the other order.
        let new = pus(&[2, 3, 1, 0]);
        let before = pus(&[0, 1, 2, 3]);
        assert_eq!(aligned(&before, new, &comm, &machine), before);
    }

    #[test]
    fn a_change_of_partners_moves_one_thread_of_each_pair() {
        let machine = numaloc_topology::resolve("numa:2 core:2 pu:1").unwrap();
        let before = pus(&[0, 1, 2, 3]);
        // Now 0 with 2 and 1 with 3, on the nodes that move all but one thread of each.
        let comm = pairs(4, &[(0, 2), (1, 3)]);
        let found = aligned(&before, pus(&[3, 0, 2, 1]), &comm, &machine);
        let node = |thread: usize| machine.node_of(found[thread]);
        assert!(node(0) == node(2) && node(1) == node(3) && node(0) != node(1));
        let stay = (0..4).filter(|&thread| found[thread] == before[thread]);
        assert_eq!(stay.count(), 2, "{found:?}");
    }

    #[test]
    fn an_exchange_that_costs_more_is_not_made() {
        // Nodes in a row: 0 - 1 - 2; threads on 0 and 1 communicate with each other, the one on 2 with nobody.
        let machine = numaloc_topology::resolve("numa:3 core:1 pu:1")
            .unwrap()
            .with_node_distances(vec![10.0, 20.0, 40.0, 20.0, 10.0, 30.0, 40.0, 30.0, 10.0])
            .unwrap();
        let comm = pairs(3, &[(0, 1)]);
        let new = pus(&[0, 1, 2]);
        // To keep thread 1 on node 2 would separate it from its partner.
        assert_eq!(aligned(&pus(&[0, 2, 1]), new.clone(), &comm, &machine), new);
    }
}
