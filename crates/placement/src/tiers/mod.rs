//! Memory of several kinds: which nodes of a machine have it, what a program demands of it, and how long loads wait.

mod demand;
mod loads;

use numaloc_model::LogicalNode;
use numaloc_topology::{Hardware, Topology};

use crate::error::PlaceError;
use crate::input::PlaceInput;

pub(crate) use demand::{Demand, Item};
pub(crate) use loads::{Loads, Machine};

/// Lines of streams that a core has outstanding at once.
pub const PREFETCHED: f64 = 20.0;
/// Misses that a core has outstanding at once.
pub const OUTSTANDING: f64 = 10.0;
/// Accesses that a core continues with while its oldest miss is outstanding.
pub const WINDOW_ACCESSES: f64 = 64.0;
/// Core cycles for an access that a private cache answers, with the instructions around it.
pub const CYCLES_PER_ACCESS: f64 = 1.5;
/// Bytes on a link of a message without a line, and of one with a line in addition to the line.
pub const MESSAGE_BYTES: f64 = 16.0;

/// Nodes with memory and without PUs: CXL, HBM, or a processor's memory that threads cannot run next to.
pub(crate) fn memory_only(topology: &Topology) -> Vec<LogicalNode> {
    (0..topology.nodes().len())
        .map(LogicalNode::from_index)
        .filter(|node| topology.nodes()[node.index()].pus.is_empty())
        .filter(|&node| topology.memory_of(node) != Some(0))
        .collect()
}

/// Memory-only nodes with more bandwidth than any node with PUs: high-bandwidth memory.
pub(crate) fn high_bandwidth(topology: &Topology, hardware: &Hardware) -> Vec<LogicalNode> {
    let bytes_per_s = |node: &LogicalNode| hardware.memory_of(node.index()).1;
    let of_cores = topology.nodes_with_pus();
    let most = of_cores.iter().map(bytes_per_s).fold(0.0, f64::max);
    let mut nodes = memory_only(topology);
    nodes.retain(|node| bytes_per_s(node) > most);
    nodes
}

/// The machine's figures, for a policy that is for memory of several kinds.
///
/// # Errors
/// [`PlaceError`] if the machine states no bandwidths, has memory of one kind, or too little for all pages.
pub(crate) fn check(policy: &'static str, input: &PlaceInput) -> Result<(), PlaceError> {
    let topology = input.topology;
    let Some(hardware) = topology.hardware() else {
        return Err(PlaceError::NoBandwidth { policy });
    };
    let with_pus = topology.nodes_with_pus();
    let kind = |node: &LogicalNode| hardware.memory_of(node.index());
    let is_one_kind = with_pus.iter().all(|node| kind(node) == kind(&with_pus[0]));
    if is_one_kind && memory_only(topology).is_empty() {
        return Err(PlaceError::OneKind { policy });
    }
    let room = input
        .capacities()
        .into_iter()
        .fold(0_u64, u64::saturating_add);
    let factor = input.page_size / input.pages.page_size().max(1);
    let least = (input.pages.pages().len() as u64).div_ceil(factor.max(1));
    if room < least {
        return Err(PlaceError::TooSmall {
            policy,
            pages: least,
            room,
        });
    }
    Ok(())
}
