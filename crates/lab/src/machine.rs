//! Describes the machine to emulate: nodes, CPUs, memory, distances; and writes QEMU's arguments for it.

use numaloc_model::LogicalNode;
use numaloc_topology::Topology;

use crate::error::LabError;

/// Smallest size of a node in bytes: kernel and initial file system must fit on the first.
const MIN_MEMORY: u64 = 128 << 20;
/// Node sizes are multiples of this (the plugin's table has one entry per chunk of this size).
const MEMORY_GRAIN: u64 = 2 << 20;
const MAX_CPUS: usize = 128;
const MAX_NODES: usize = 64;

/// A virtual NUMA machine. CPUs are numbered node by node, as in the guest's kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Name or description for users.
    pub name: String,
    /// CPUs of each node; 0 for a memory-only node.
    pub cpus: Vec<usize>,
    /// Bytes of memory of each node.
    pub memory: Vec<u64>,
    /// Hardware threads per core.
    pub threads_per_core: usize,
    /// Nodes x nodes, row by row, 10 = local (ACPI SLIT).
    pub distances: Vec<u8>,
}

impl Machine {
    /// `nodes` equal nodes that divide `cpus` CPUs evenly and have `memory` bytes each. Distances are as in `distances`
    /// (nodes x nodes, row by row), by default 20 between different nodes.
    ///
    /// # Errors
    /// [`LabError::Machine`] if the numbers describe no valid machine.
    pub fn even(
        nodes: usize,
        cpus: usize,
        memory: u64,
        distances: Option<&[u8]>,
    ) -> Result<Self, LabError> {
        if nodes == 0 || cpus == 0 || !cpus.is_multiple_of(nodes) {
            return Err(LabError::Machine(format!(
                "{cpus} CPUs do not divide evenly over {nodes} nodes"
            )));
        }
        let machine = Self {
            name: format!("lab {nodes} nodes, {cpus} CPUs, {} MiB each", memory >> 20),
            cpus: vec![cpus / nodes; nodes],
            memory: vec![memory; nodes],
            threads_per_core: 1,
            distances: match distances {
                Some(given) => given.to_vec(),
                None => (0..nodes * nodes)
                    .map(|at| if at / nodes == at % nodes { 10 } else { 20 })
                    .collect(),
            },
        };
        machine.check()?;
        Ok(machine)
    }

    /// A described machine scaled down: its nodes, PUs and distances, with `memory` bytes per node.
    ///
    /// # Errors
    /// [`LabError::Machine`] if QEMU cannot express it: nodes with different numbers of PUs, more than
    /// 128 PUs or 64 nodes.
    pub fn like(topology: &Topology, memory: u64) -> Result<Self, LabError> {
        let nodes = topology.nodes();
        let first = topology.pus().first().map_or(0, |pu| pu.core);
        let threads = topology.pus().iter().filter(|pu| pu.core == first).count();
        let distance = |from: usize, to: usize| {
            let from = LogicalNode::from_index(from);
            let to = LogicalNode::from_index(to);
            if from == to {
                10
            } else {
                topology.node_distance(from, to).round().clamp(11.0, 254.0) as u8
            }
        };
        let machine = Self {
            name: topology.name().to_owned(),
            cpus: nodes.iter().map(|node| node.pus.len()).collect(),
            memory: vec![memory; nodes.len()],
            threads_per_core: threads.max(1),
            distances: (0..nodes.len() * nodes.len())
                .map(|at| distance(at / nodes.len(), at % nodes.len()))
                .collect(),
        };
        machine.check()?;
        Ok(machine)
    }

    fn check(&self) -> Result<(), LabError> {
        let fail = |why: String| Err(LabError::Machine(why));
        let nodes = self.cpus.len();
        let per_node = self.cpus.iter().copied().max().unwrap_or(0);
        if nodes > MAX_NODES || self.cpu_count() > MAX_CPUS {
            return fail(format!(
                "{nodes} nodes and {} CPUs; at most {MAX_NODES} and {MAX_CPUS} are supported",
                self.cpu_count()
            ));
        }
        if self.cpus[0] == 0 || self.cpus.iter().any(|&c| c != 0 && c != per_node) {
            return fail(format!(
                "every node with CPUs needs the same number, the first included; found {:?}",
                self.cpus
            ));
        }
        if !per_node.is_multiple_of(self.threads_per_core) {
            return fail(format!(
                "{per_node} CPUs per node are no whole number of {}-thread cores",
                self.threads_per_core
            ));
        }
        for &bytes in &self.memory {
            if bytes < MIN_MEMORY || !bytes.is_multiple_of(MEMORY_GRAIN) {
                return fail(format!(
                    "{bytes} bytes per node; expected at least 128M and a multiple of 2M"
                ));
            }
        }
        if self.distances.len() != nodes * nodes {
            return fail(format!(
                "{} distances; expected {nodes} x {nodes}",
                self.distances.len()
            ));
        }
        for (at, &distance) in self.distances.iter().enumerate() {
            let local = at / nodes == at % nodes;
            if local != (distance == 10) || distance < 10 || distance == 255 {
                return fail(format!(
                    "distance {distance} from node {} to {}; expected 10 for a node itself, 11 to 254 else",
                    at / nodes,
                    at % nodes
                ));
            }
        }
        Ok(())
    }

    /// Number of CPUs.
    #[must_use]
    pub fn cpu_count(&self) -> usize {
        self.cpus.iter().sum()
    }

    /// Memory of all nodes in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.memory.iter().sum()
    }

    /// The node of each CPU.
    #[must_use]
    pub fn node_of_cpu(&self) -> Vec<usize> {
        let of_node = |(node, &cpus): (usize, &usize)| std::iter::repeat_n(node, cpus);
        self.cpus.iter().enumerate().flat_map(of_node).collect()
    }

    /// QEMU's arguments for CPUs, memory and the ACPI tables SRAT and SLIT.
    pub(crate) fn qemu_arguments(&self) -> Vec<String> {
        let sockets = self.cpus.iter().filter(|&&cpus| cpus > 0).count();
        let cores = self.cpus[0] / self.threads_per_core;
        let mut arguments = vec![
            "-smp".to_owned(),
            format!(
                "{},sockets={sockets},cores={cores},threads={}",
                self.cpu_count(),
                self.threads_per_core
            ),
            "-m".to_owned(),
            format!("{}M", self.memory_bytes() >> 20),
        ];
        let mut add = |flag: &str, value: String| arguments.extend([flag.to_owned(), value]);
        let mut socket = 0;
        for (node, (&cpus, &bytes)) in self.cpus.iter().zip(&self.memory).enumerate() {
            add(
                "-object",
                format!("memory-backend-ram,id=m{node},size={bytes}"),
            );
            add("-numa", format!("node,nodeid={node},memdev=m{node}"));
            if cpus > 0 {
                add("-numa", format!("cpu,node-id={node},socket-id={socket}"));
                socket += 1;
            }
        }
        let nodes = self.cpus.len();
        for (at, distance) in self.distances.iter().enumerate().filter(|_| nodes > 1) {
            let (from, to) = (at / nodes, at % nodes);
            add("-numa", format!("dist,src={from},dst={to},val={distance}"));
        }
        arguments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_machine_as_qemu_arguments() {
        let machine = Machine::even(2, 4, 256 << 20, None).unwrap();
        assert_eq!(machine.node_of_cpu(), [0, 0, 1, 1]);
        let words = machine.qemu_arguments().join(" ");
        assert!(
            words.contains("-smp 4,sockets=2,cores=2,threads=1 -m 512M"),
            "{words}"
        );
        assert!(words.contains("-numa cpu,node-id=1,socket-id=1"), "{words}");
        assert!(words.contains("dist,src=1,dst=0,val=20"), "{words}");
    }

    #[test]
    fn described_machines_keep_their_distances_and_threads() {
        let topology = numaloc_topology::resolve("opteron-6386").unwrap();
        let machine = Machine::like(&topology, 256 << 20).unwrap();
        assert_eq!(machine.cpus.len(), 8);
        assert_eq!(machine.cpu_count(), topology.pus().len());
        assert!(machine.distances.iter().any(|&d| d > 20));
    }

    #[test]
    fn invalid_machines_are_refused() {
        for (nodes, cpus, memory, distances) in [
            (3, 8, 256 << 20, None),
            (0, 8, 256 << 20, None),
            (2, 2, 1 << 20, None),
            (2, 2, (256 << 20) + 4096, None),
            (2, 2, 256 << 20, Some(&[10, 20, 20][..])),
            (2, 2, 256 << 20, Some(&[10, 10, 20, 10][..])),
            (200, 200, 256 << 20, None),
        ] {
            let error = Machine::even(nodes, cpus, memory, distances).unwrap_err();
            assert!(matches!(error, LabError::Machine(_)), "{error}");
        }
    }
}
