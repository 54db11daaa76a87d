//! The cost of a placement on the profile it was made from.

use crate::affinity::Affinity;
use crate::data::Data;

/// Bytes of tasks' blocks by locality, and the time lost to distance.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    /// On the task's node.
    pub local_bytes: u64,
    /// On another node.
    pub remote_bytes: u64,
    /// Bytes of tasks or blocks without a node.
    pub unknown_bytes: u64,
    /// Sum of affinities times (distance over local distance, minus 1), over remote uses.
    pub remote_seconds: f64,
}

/// Sums over every use in the profile; `task_node` and `block_node` are by class.
pub fn traffic(
    data: &Data,
    affinity: &Affinity,
    distance: &dyn Fn(u16, u16) -> f64,
    task_node: &[Option<u16>],
    block_node: &[Option<u16>],
) -> Traffic {
    let mut traffic = Traffic::default();
    for (class, used) in data.class_data.iter().enumerate() {
        for (&(slot, block), &count) in &used.uses {
            let bytes = data.block_classes[block].bytes.saturating_mul(count);
            match (task_node[class], block_node[block]) {
                (Some(task), Some(at)) if task == at => {
                    traffic.local_bytes = traffic.local_bytes.saturating_add(bytes)
                }
                (Some(task), Some(at)) => {
                    traffic.remote_bytes = traffic.remote_bytes.saturating_add(bytes);
                    let b = affinity.estimates[class]
                        .get(&slot)
                        .map_or(0.0, |e| e.seconds);
                    let excess = distance(task, at) / distance(task, task) - 1.0;
                    traffic.remote_seconds += b * excess * count as f64;
                }
                _ => traffic.unknown_bytes = traffic.unknown_bytes.saturating_add(bytes),
            }
        }
    }
    traffic
}
