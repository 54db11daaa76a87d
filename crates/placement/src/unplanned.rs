//! Where the kernel places pages that a plan leaves to it.

use numaloc_model::pages::Page;
use numaloc_model::{LogicalNode, MemoryPolicy};
use numaloc_topology::Topology;

/// The node that the kernel gives a page which a thread of the node `toucher` places: that node, or the one that a
/// memory policy of the program chooses.
pub(crate) fn kernels_choice(
    topology: &Topology,
    page: &Page,
    toucher: Option<LogicalNode>,
) -> Option<LogicalNode> {
    let Some(policy) = page.policy else {
        return toucher;
    };
    let nodes = topology.nodes();
    // The policy has the indexes of the operating system.
    let mut logical = 0;
    for (at, node) in nodes.iter().enumerate().take(64) {
        let os = node.os.0;
        let is_chosen = os < 64 && policy.nodes >> os & 1 != 0;
        if is_chosen {
            logical |= 1 << at;
        }
    }
    let policy = MemoryPolicy {
        nodes: logical,
        ..policy
    };
    let node = policy.node(
        page.object_page,
        nodes.len(),
        toucher.map(LogicalNode::index),
    );
    node.map(LogicalNode::from_index)
}
