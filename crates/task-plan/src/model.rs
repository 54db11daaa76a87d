//! The cost of a task on a described machine, in seconds: a fixed part, and for each block it holds, bytes divided by a
//! core's share of bandwidth when all cores work, of its own node's memory or of the link to the other node. Used by
//! the runtime's simulation and by the comparison of plans.

use numaloc_topology::Topology;

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
