//! Assignments of threads to NUMA nodes.
//!
//! Exclusivity, balance and accuracy depend on the nodes that accesses come from (OPT 5.1.1), so they are always those
//! *of an assignment*. In addition to the blocks of the simplest mapping, this module finds the assignments that OPT's
//! Figs. 6 and 7 compare: those with the largest and smallest application exclusivity. The papers do not say how they
//! found them; the exact problem is a balanced graph partition, so ours is a search and its extremes are inner bounds:
//! the true maximum is at least, the true minimum at most, what is reported. The search maximises (minimises) the
//! accesses that pairs of threads on one node have in common, starting from blocks, round robin and a greedy growth,
//! swapping pairs while that helps. Ties go to the lower thread.
//!
//! Cost: O(T²) per pass, at most 30 passes; memory O(T² + T N).

use numaloc_model::pages::Page;
use numaloc_model::plan::block;
use numaloc_model::{CommMatrix, LogicalNode, PageUsage, ThreadAccess};

/// The node of every thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAssignment {
    /// Number of nodes of the machine, with PUs or memory-only (CXL, HBM): the length of arrays by node.
    pub nodes: usize,
    /// Nodes with PUs, in order: threads run on them, and balance is computed over them. Memory-only nodes hold pages
    /// and count in no mean.
    pub homes: Vec<LogicalNode>,
    /// By thread.
    pub of_thread: Vec<LogicalNode>,
}

impl NodeAssignment {
    /// Neighbouring threads together, in blocks as equal as possible: the nodes of threads that are `pinned`.
    ///
    /// # Panics
    /// If `nodes` is 0.
    #[must_use]
    pub fn blocks(threads: usize, nodes: usize) -> Self {
        assert!(nodes > 0, "a machine has a node");
        Self {
            nodes,
            homes: every(nodes),
            of_thread: (0..threads)
                .map(|t| LogicalNode::from_index(block(t, threads, nodes)))
                .collect(),
        }
    }

    /// Neighbouring threads apart: thread `t` on node `t mod nodes`.
    ///
    /// # Panics
    /// If `nodes` is 0.
    #[must_use]
    pub fn round_robin(threads: usize, nodes: usize) -> Self {
        assert!(nodes > 0, "a machine has a node");
        Self {
            nodes,
            homes: every(nodes),
            of_thread: (0..threads)
                .map(|t| LogicalNode::from_index(t % nodes))
                .collect(),
        }
    }

    /// The values of nodes with PUs, from values by node.
    ///
    /// # Panics
    /// If `by_node` is not as long as the machine has nodes.
    #[must_use]
    pub fn of_homes<T: Copy>(&self, by_node: &[T]) -> Vec<T> {
        self.homes
            .iter()
            .map(|home| by_node[home.index()])
            .collect()
    }

    /// The node of a page without a plan: that of the thread that placed it, or the one that a memory policy of the
    /// program chooses (nodes by their indexes).
    #[must_use]
    pub fn home(&self, page: &Page) -> Option<LogicalNode> {
        let toucher = page.first_touch.map(|thread| self.node(thread.index()));
        let node = match page.policy {
            Some(policy) => policy.node(page.object_page, self.nodes, toucher),
            None => toucher,
        };
        node.map(LogicalNode::from_index)
    }

    /// The node of a thread as an index.
    #[must_use]
    pub fn node(&self, thread: usize) -> usize {
        self.of_thread[thread].index()
    }
}

/// All nodes of a machine in which each has PUs.
fn every(nodes: usize) -> Vec<LogicalNode> {
    (0..nodes).map(LogicalNode::from_index).collect()
}

/// Whether threads of one node should share much or little.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// As much in common as possible.
    Together,
    /// As little in common as possible.
    Apart,
}

/// Most threads for which a search is tried; beyond, blocks (or round robin) are returned.
pub const SEARCH_THREADS: usize = 4096;

/// Number of accessors of a page that count in [`page_affinity`], the heaviest first: sharing by hundreds of threads
/// does not show which belong together.
const ACCESSORS: usize = 32;

/// Accesses that two threads have in common: sum over pages of the smaller of their counts. Symmetric.
#[must_use]
pub fn page_affinity(usage: &PageUsage, threads: usize) -> CommMatrix {
    if threads > SEARCH_THREADS {
        return CommMatrix::empty(threads);
    }
    let mut dense = vec![0.0; threads * threads];
    let mut heaviest: Vec<ThreadAccess> = Vec::new();
    for page in usage.pages() {
        let accesses = usage.accesses(page);
        if accesses.len() < 2 {
            continue;
        }
        heaviest.clear();
        heaviest.extend_from_slice(accesses);
        if heaviest.len() > ACCESSORS {
            heaviest.sort_by_key(|access| (std::cmp::Reverse(access.total()), access.thread));
            heaviest.truncate(ACCESSORS);
        }
        for (at, a) in heaviest.iter().enumerate() {
            for b in &heaviest[at + 1..] {
                let shared = a.total().min(b.total()) as f64;
                dense[a.thread.index() * threads + b.thread.index()] += shared;
                dense[b.thread.index() * threads + a.thread.index()] += shared;
            }
        }
    }
    CommMatrix::from_dense(threads, &dense).expect("sums of counts are amounts")
}

/// Assigns threads to nodes in equal shares (sizes differ by at most one), by what they have in common.
///
/// `affinity` must be symmetric.
///
/// # Panics
/// If `nodes` is 0.
#[must_use]
pub fn assign(affinity: &CommMatrix, nodes: usize, goal: Goal) -> NodeAssignment {
    let threads = affinity.threads();
    let blocks = NodeAssignment::blocks(threads, nodes);
    let spread = NodeAssignment::round_robin(threads, nodes);
    if threads > SEARCH_THREADS || nodes == 1 {
        return match goal {
            Goal::Together => blocks,
            Goal::Apart => spread,
        };
    }
    let mut best: Option<(f64, NodeAssignment)> = None;
    let grown = grow(affinity, nodes, goal);
    for mut candidate in [blocks, spread, grown] {
        improve(affinity, &mut candidate, goal);
        let within = within_nodes(affinity, &candidate);
        let better = best.as_ref().is_none_or(|(known, _)| match goal {
            Goal::Together => within > *known,
            Goal::Apart => within < *known,
        });
        if better {
            best = Some((within, candidate));
        }
    }
    best.expect("there are candidates").1
}

/// The amount between threads of the same node (both cells of a pair count).
#[must_use]
pub fn within_nodes(affinity: &CommMatrix, assignment: &NodeAssignment) -> f64 {
    affinity
        .cells()
        .filter(|&(i, j, _)| assignment.node(i) == assignment.node(j))
        .map(|(_, _, amount)| amount)
        .sum()
}

/// Fills node after node with the free thread that fits its members best.
fn grow(affinity: &CommMatrix, nodes: usize, goal: Goal) -> NodeAssignment {
    let threads = affinity.threads();
    let mut of_thread = vec![LogicalNode(0); threads];
    let mut free = vec![true; threads];
    for node in 0..nodes {
        let size = (node + 1) * threads / nodes - node * threads / nodes;
        let mut with_members = vec![0.0; threads];
        for _ in 0..size {
            let sign = if goal == Goal::Together { 1.0 } else { -1.0 };
            let mut pick: Option<usize> = None;
            for t in (0..threads).filter(|&t| free[t]) {
                if pick.is_none_or(|p| sign * with_members[t] > sign * with_members[p]) {
                    pick = Some(t);
                }
            }
            let pick = pick.expect("sizes add up to the threads");
            free[pick] = false;
            of_thread[pick] = LogicalNode::from_index(node);
            for (other, amount) in affinity.row(pick) {
                with_members[other] += amount;
            }
        }
    }
    NodeAssignment {
        nodes,
        homes: every(nodes),
        of_thread,
    }
}

/// Swaps threads of different nodes while that improves the goal.
fn improve(affinity: &CommMatrix, assignment: &mut NodeAssignment, goal: Goal) {
    let (threads, nodes) = (affinity.threads(), assignment.nodes);
    // to_node[t * nodes + n]: what t shares with the threads of n.
    let mut to_node = vec![0.0; threads * nodes];
    for (i, j, amount) in affinity.cells() {
        to_node[i * nodes + assignment.node(j)] += amount;
    }
    let sign = if goal == Goal::Together { 1.0 } else { -1.0 };
    let scale = affinity.max().max(1.0);
    for _ in 0..30 {
        let mut improved = false;
        for a in 0..threads {
            for b in a + 1..threads {
                let (na, nb) = (assignment.node(a), assignment.node(b));
                if na == nb {
                    continue;
                }
                let gain = to_node[a * nodes + nb] - to_node[a * nodes + na]
                    + to_node[b * nodes + na]
                    - to_node[b * nodes + nb]
                    - 2.0 * affinity.get(a, b);
                if sign * gain > 1e-9 * scale {
                    for (thread, from, to) in [(a, na, nb), (b, nb, na)] {
                        for (other, amount) in affinity.row(thread) {
                            to_node[other * nodes + from] -= amount;
                            to_node[other * nodes + to] += amount;
                        }
                        assignment.of_thread[thread] = LogicalNode::from_index(to);
                    }
                    improved = true;
                }
            }
        }
        if !improved {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn distant_pairs_are_joined_or_separated() {
        // Pairs (0,2) and (1,3) share; blocks of two separate them, the search must not.
        let affinity =
            CommMatrix::from_cells(4, [(0, 2, 5.0), (2, 0, 5.0), (1, 3, 5.0), (3, 1, 5.0)])
                .unwrap();
        let together = assign(&affinity, 2, Goal::Together);
        assert_eq!(within_nodes(&affinity, &together), 20.0);
        assert_eq!(
            within_nodes(&affinity, &assign(&affinity, 2, Goal::Apart)),
            0.0
        );
    }

    #[test]
    fn blocks_differ_by_at_most_one() {
        let sizes = |a: NodeAssignment| {
            let mut sizes = vec![0; a.nodes];
            for t in 0..a.of_thread.len() {
                sizes[a.node(t)] += 1;
            }
            sizes
        };
        assert_eq!(sizes(NodeAssignment::blocks(10, 4)), [3, 2, 3, 2]);
        assert_eq!(sizes(NodeAssignment::round_robin(10, 4)), [3, 3, 2, 2]);
        assert_eq!(sizes(NodeAssignment::blocks(2, 4)), [1, 0, 1, 0]);
    }

    proptest! {
        #[test]
        fn search_is_balanced_and_brackets_blocks(cells in proptest::collection::vec(0u8..9, 36), nodes in 1usize..4) {
            let affinity = CommMatrix::from_dense(6, &cells.into_iter().map(f64::from).collect::<Vec<_>>())
                .unwrap().symmetrised();
            let blocks = within_nodes(&affinity, &NodeAssignment::blocks(6, nodes));
            for goal in [Goal::Together, Goal::Apart] {
                let found = assign(&affinity, nodes, goal);
                let mut sizes = vec![0usize; nodes];
                for t in 0..6 { sizes[found.node(t)] += 1; }
                prop_assert!(sizes.iter().all(|&s| s == 6 / nodes || s == 6usize.div_ceil(nodes)));
                let within = within_nodes(&affinity, &found);
                let brackets = match goal {
                    Goal::Together => within >= blocks,
                    Goal::Apart => within <= blocks,
                };
                prop_assert!(brackets);
            }
        }
    }
}
