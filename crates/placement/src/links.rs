//! Links between NUMA nodes and the routes over them.

use numaloc_topology::Topology;
use std::collections::VecDeque;

/// Bytes per second of a link of a machine that lists none.
pub(crate) const BYTES_PER_S: f64 = 20e9;

/// Directed links of a machine, and the route with fewest hops between each two nodes (ties: the lower link). A machine
/// that lists none has one from each node to each other, whose latency follows from the distance of the nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Links {
    nodes: usize,
    bytes_per_s: Vec<f64>,
    latency_s: Vec<f64>,
    /// Links on the way from node to node, first hop first, row-major.
    routes: Vec<Vec<usize>>,
}

impl Links {
    /// The machine's links; `bytes_per_s` and `memory_s` (a node's own memory) if it lists none.
    #[must_use]
    pub fn of(topology: &Topology, bytes_per_s: f64, memory_s: f64) -> Self {
        let nodes = topology.nodes().len();
        let given = topology.hardware().map_or(&[][..], |h| &h.links[..]);
        let mut ends = Vec::new();
        let (mut speeds, mut latency_s) = (Vec::new(), Vec::new());
        for link in given {
            ends.push((link.from as usize, link.to as usize));
            speeds.push(link.bandwidth_bytes_per_s);
            latency_s.push(link.latency_ns * 1e-9);
        }
        if given.is_empty() {
            for (from, to) in (0..nodes * nodes).map(|at| (at / nodes, at % nodes)) {
                if from != to {
                    ends.push((from, to));
                    speeds.push(bytes_per_s);
                    latency_s.push(half_way_s(topology, from, to, memory_s));
                }
            }
        }
        Self {
            nodes,
            routes: (0..nodes)
                .flat_map(|from| routes_from(from, nodes, &ends))
                .collect(),
            bytes_per_s: speeds,
            latency_s,
        }
    }

    /// Links from node to node, first hop first; none to itself.
    #[must_use]
    pub fn route(&self, from: usize, to: usize) -> &[usize] {
        &self.routes[from * self.nodes + to]
    }

    /// Bytes per second of every link.
    #[must_use]
    pub fn bytes_per_s(&self) -> &[f64] {
        &self.bytes_per_s
    }

    /// Seconds from one end of every link to the other.
    #[must_use]
    pub fn latency_s(&self) -> &[f64] {
        &self.latency_s
    }
}

/// An access to another node crosses the link twice and takes in all the distance's share longer.
fn half_way_s(topology: &Topology, from: usize, to: usize, memory_s: f64) -> f64 {
    let node = numaloc_model::LogicalNode::from_index;
    let own = topology.node_distance(node(from), node(from)).max(1e-9);
    let farther = topology.node_distance(node(from), node(to)) / own - 1.0;
    memory_s * farther.max(0.0) / 2.0
}

/// The route with fewest hops from `from` to every node; empty to itself and if there is none.
fn routes_from(from: usize, nodes: usize, ends: &[(usize, usize)]) -> Vec<Vec<usize>> {
    let mut by: Vec<Option<usize>> = vec![None; nodes];
    let mut queue = VecDeque::from([from]);
    while let Some(at) = queue.pop_front() {
        for (link, &(a, b)) in ends.iter().enumerate() {
            if a == at && b < nodes && b != from && by[b].is_none() {
                by[b] = Some(link);
                queue.push_back(b);
            }
        }
    }
    (0..nodes)
        .map(|to| {
            let mut way = Vec::new();
            let mut at = to;
            while let Some(link) = by[at] {
                way.push(link);
                at = ends[link].0;
            }
            way.reverse();
            way
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_take_the_fewest_hops() {
        // A chain 0 - 1 - 2: links 0: 0->1, 1: 1->0, 2: 1->2, 3: 2->1.
        let ends = [(0, 1), (1, 0), (1, 2), (2, 1)];
        assert_eq!(routes_from(0, 3, &ends), [vec![], vec![0], vec![0, 2]]);
        assert_eq!(routes_from(2, 3, &ends), [vec![3, 1], vec![3], vec![]]);
    }

    #[test]
    fn a_machine_without_links_has_one_from_each_node_to_each_other() {
        // Distances 10 and 20: remote memory takes twice the 100 ns, 50 ns more each way.
        let machine = numaloc_topology::resolve("numa:3 core:1 pu:1").unwrap();
        let links = Links::of(&machine, 2e10, 100e-9);
        assert_eq!(links.bytes_per_s(), [2e10; 6]);
        assert!(links.latency_s().iter().all(|&s| (s - 50e-9).abs() < 1e-15));
        assert_eq!((links.route(0, 0), links.route(2, 0)), (&[][..], &[4][..]));
    }
}
