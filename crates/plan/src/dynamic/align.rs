//! Relabels a mapping so that little has to move, without making it worse.
//!
//! A policy computes a phase's mapping from scratch. On a machine with equal nodes any exchange of nodes is as good;
//! the one chosen here takes the least time for moves, of threads and of the pages that follow them. Greedy: exchanges
//! whole nodes, then PUs within nodes, as long as moves take less time and the cost by distance does not grow. Time:
//! O(nodes² + threads) times O(cells) for each round; at most [`ROUNDS`] rounds.

use numaloc_model::{CommMatrix, LogicalPu};
use numaloc_topology::Topology;

/// Rounds of exchanging nodes.
const ROUNDS: usize = 8;

/// The time that moves take, in seconds.
#[derive(Clone, Debug)]
pub struct Moving {
    /// Of a thread.
    pub thread_s: f64,
    /// Of the pages of each thread (row) to each node; empty: no pages.
    pub pages_s: Vec<f64>,
}

/// The mapping `new` (a PU for each thread) with nodes and PUs exchanged so that less time goes into moves from where
/// `before` has the threads. `comm` is the communication that its cost is computed by.
#[must_use]
pub fn aligned(
    before: &[LogicalPu],
    new: Vec<LogicalPu>,
    comm: &CommMatrix,
    machine: &Topology,
    moving: &Moving,
) -> Vec<LogicalPu> {
    let mut search = Search {
        before,
        comm,
        moving,
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
    moving: &'a Moving,
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

    /// Seconds for moving threads to other nodes, and their pages.
    fn moves_s(&self, pu: &[LogicalPu]) -> f64 {
        let nodes = self.machine.nodes().len();
        let both = self.before.iter().zip(pu).enumerate();
        let moves = both.map(|(thread, (&from, &to))| {
            let (from, to) = (self.machine.node_of(from), self.machine.node_of(to));
            let pages_s = self.moving.pages_s.get(thread * nodes + to.index());
            let thread_s = if from == to {
                0.0
            } else {
                self.moving.thread_s
            };
            thread_s + pages_s.copied().unwrap_or(0.0)
        });
        moves.sum()
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

    /// Exchanges the threads of two nodes of equal size, if moves then take less time.
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
        self.moves_s(&pu) < self.moves_s(&self.pu) * (1.0 - 1e-9) && self.take(pu)
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

    const THREADS: Moving = Moving {
        thread_s: 1.0,
        pages_s: Vec::new(),
    };

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
        assert_eq!(aligned(&before, new, &comm, &machine, &THREADS), before);
    }

    #[test]
    fn a_change_of_partners_moves_one_thread_of_each_pair() {
        let machine = numaloc_topology::resolve("numa:2 core:2 pu:1").unwrap();
        let before = pus(&[0, 1, 2, 3]);
        // Now 0 with 2 and 1 with 3, on the nodes that move all but one thread of each.
        let comm = pairs(4, &[(0, 2), (1, 3)]);
        let found = aligned(&before, pus(&[3, 0, 2, 1]), &comm, &machine, &THREADS);
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
        let before = pus(&[0, 2, 1]);
        assert_eq!(
            aligned(&before, new.clone(), &comm, &machine, &THREADS),
            new
        );
    }

    /// Of exchanges by which equally many threads stay, the one after which fewest pages move.
    #[test]
    fn threads_go_where_their_pages_are() {
        let machine = numaloc_topology::resolve("numa:2 core:2 pu:1").unwrap();
        let before = pus(&[0, 1, 2, 3]);
        let comm = pairs(4, &[(0, 2), (1, 3)]);
        let node_of_0 = |pages_on: [usize; 4]| {
            let away_s = |on: usize| (0..2).map(move |node| if node == on { 0.0 } else { 0.01 });
            let moving = Moving {
                pages_s: pages_on.into_iter().flat_map(away_s).collect(),
                ..THREADS
            };
            let found = aligned(&before, pus(&[0, 2, 1, 3]), &comm, &machine, &moving);
            machine.node_of(found[0]).0
        };
        // Threads 0 and 2 have all their pages on one node, whichever it is; those of the others are on both.
        assert_eq!([node_of_0([0, 0, 0, 1]), node_of_0([1, 0, 1, 1])], [0, 1]);
    }
}
