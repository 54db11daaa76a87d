//! The runtime's view of the machine: nodes, their PUs and their distances.

use numaloc_model::LogicalNode;
use numaloc_topology::Topology;

/// No particular node.
pub const NO_NODE: u16 = u16::MAX;

/// Nodes with PUs, numbered densely; the program sees them as affinities.
pub struct Machine {
    topology: Topology,
    /// Logical node in the topology, by dense node number.
    nodes: Vec<LogicalNode>,
    distances: Vec<f64>,
}

impl Machine {
    /// The runtime's view of a topology.
    #[must_use]
    pub fn new(topology: Topology) -> Self {
        let nodes = topology.nodes_with_pus();
        let distances = nodes
            .iter()
            .flat_map(|&from| nodes.iter().map(move |&to| (from, to)))
            .map(|(from, to)| topology.node_distance(from, to))
            .collect();
        Self {
            topology,
            nodes,
            distances,
        }
    }

    /// Number of nodes with PUs.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Number of PUs.
    #[must_use]
    pub fn pus(&self) -> usize {
        self.topology.pus().len()
    }

    /// The topology itself.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Whether workers can be pinned and memory bound: the described machine is this one.
    #[must_use]
    pub fn is_real(&self) -> bool {
        self.topology.is_this_machine()
    }

    /// OS indexes of the nodes, if binding memory makes a difference.
    #[must_use]
    pub fn bindable_nodes(&self) -> Option<Vec<u32>> {
        (self.is_real() && self.nodes.len() > 1).then(|| {
            self.nodes
                .iter()
                .map(|node| self.topology.nodes()[node.index()].os.0)
                .collect()
        })
    }

    /// OS indexes of a node's PUs.
    #[must_use]
    pub fn pus_of(&self, node: usize) -> Vec<u32> {
        self.topology.nodes()[self.nodes[node].index()]
            .pus
            .iter()
            .map(|pu| self.topology.pus()[pu.index()].os.0)
            .collect()
    }

    /// Node of each of `workers` workers: distributed over the nodes in proportion to their PUs, in blocks.
    #[must_use]
    pub fn spread(&self, workers: usize) -> Vec<u16> {
        let of_pu: Vec<u16> = (0..self.nodes.len())
            .flat_map(|node| vec![node as u16; self.pus_of(node).len()])
            .collect();
        (0..workers)
            .map(|at| {
                if workers >= of_pu.len() {
                    of_pu[at % of_pu.len()]
                } else {
                    of_pu[at * of_pu.len() / workers]
                }
            })
            .collect()
    }

    /// Distance between two nodes, as reported by firmware.
    #[must_use]
    pub fn distance(&self, from: u16, to: u16) -> f64 {
        self.distances[usize::from(from) * self.nodes.len() + usize::from(to)]
    }

    /// Distance between two nodes divided by the local distance: 1 is local.
    #[must_use]
    pub fn relative_distance(&self, from: u16, to: u16) -> f64 {
        self.distance(from, to) / self.distance(from, from).max(1.0)
    }
}
