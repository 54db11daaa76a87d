//! The cost of a task on a described machine, in seconds: a fixed part, and for each block it holds, bytes divided by a
//! core's share of bandwidth when all cores work, of its own node's memory or of the link to the other node. And when a
//! task is worth running away from its data. Used by the runtime, its simulation and the comparison of plans.

use numaloc_topology::Topology;

/// Which workers may steal tasks from another node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Stealing {
    /// None: stealing stays inside a node.
    Node,
    /// Workers whose own node has no work, from a node that has more than it can do in the time that a task takes
    /// elsewhere ([`Patience`]).
    #[default]
    Surplus,
    /// Workers whose own node has no work.
    Any,
}

impl Stealing {
    /// All of them, by name.
    pub const ALL: [(&str, Self); 3] = [
        ("node", Self::Node),
        ("surplus", Self::Surplus),
        ("any", Self::Any),
    ];

    /// Its name in files and options.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].0
    }
}

/// When a worker may take a task that belongs on another node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Patience {
    /// Workers of the task's node.
    pub workers: usize,
    /// Seconds per byte there.
    pub near: f64,
    /// Seconds per byte from the node of the worker that would take it.
    pub far: f64,
}

impl Patience {
    /// Tasks that must wait on the node before one is taken away, if a task has `bytes` of data.
    ///
    /// All workers of the node are busy: the last of `q` waiting tasks starts there after about `(q - 1/2) / workers`
    /// times what a task takes. Elsewhere it starts at once and takes longer, because its data is far. But workers
    /// prefer the tasks that their last one made ready, and a single task may wait for all of these: where distance
    /// costs little ([`LITTLE`]), one that waits is enough.
    #[must_use]
    pub fn tasks(&self, bytes: f64) -> usize {
        let longer = self.longer(bytes);
        if longer <= LITTLE {
            return 1;
        }
        (longer * self.workers as f64 + 0.5).ceil() as usize
    }

    /// How much longer a task with `bytes` of data takes far from them, as a share of what it takes near.
    #[must_use]
    pub fn longer(&self, bytes: f64) -> f64 {
        let near = SECONDS_PER_TASK + bytes * self.near;
        (bytes * (self.far - self.near) / near).max(0.0)
    }
}

/// A task that takes longer by this share of its time may run anywhere.
const LITTLE: f64 = 0.25;

/// Cost of a task without its data, in seconds.
pub const SECONDS_PER_TASK: f64 = 1e-6;

/// Seconds per byte by (node of the core, node of the memory), row by row; nodes with PUs, numbered densely. `workers`
/// is the number of active cores on the whole machine. For other nodes, at least the local cost times the distance.
#[must_use]
pub fn seconds_per_byte(machine: &Topology, workers: usize) -> Vec<f64> {
    let ids = machine.nodes_with_pus();
    let nodes = ids.len();
    let cores = (workers as f64 / nodes as f64).max(1.0);
    let hardware = machine.hardware();
    let local = cores / hardware.map_or(50e9, |h| h.memory_bandwidth_bytes_per_s);
    let mut cost = Vec::with_capacity(nodes * nodes);
    for from in 0..nodes {
        for to in 0..nodes {
            let near = machine.node_distance(ids[from], ids[from]).max(1.0);
            let by_distance = local * (machine.node_distance(ids[from], ids[to]) / near);
            let by_link = hardware
                .and_then(|h| {
                    h.links
                        .iter()
                        .find(|l| l.from == to as u32 && l.to == from as u32)
                })
                .map_or(0.0, |link| cores / link.bandwidth_bytes_per_s);
            cost.push(if from == to {
                local
            } else {
                by_distance.max(by_link)
            });
        }
    }
    cost
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_taken_where_waiting_costs_more_than_distance() {
        let patience = Patience {
            workers: 4,
            near: 1e-10,
            far: 2e-10,
        };
        // Data is all that counts, and takes twice as long: a round of the four workers must be waiting.
        assert_eq!(patience.tasks(1e9), 5);
        // As long as the task itself.
        assert_eq!(patience.tasks(1e4), 3);
        assert_eq!(patience.tasks(0.0), 1, "no data to be far from");
        // A fifth longer: one may wait behind all that the four make ready.
        assert_eq!(patience.tasks(2500.0), 1);
    }
}
