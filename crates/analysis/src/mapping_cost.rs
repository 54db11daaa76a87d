//! Remote communication and load balance of an assignment of threads to nodes.
//!
//! Implements CMLB (2021) eq. 4-6. Eq. 6 as printed, `sqrt(sum (L_i - L) / n)`, lacks the square (its
//! sum is always 0); we compute the population standard deviation the text describes.
//!
//! Cost: O(stored cells), O(threads + nodes).

use numaloc_model::{CommMatrix, Layer};

use crate::assignment::NodeAssignment;

/// RemoteComm (CMLB eq. 4, 5): amount exchanged between threads of different nodes, each pair once.
#[must_use]
pub fn remote_communication(matrix: &CommMatrix, layer: Layer, assignment: &NodeAssignment) -> f64 {
    let cells: f64 = matrix
        .cells()
        .filter(|&(src, dst, _)| assignment.node(src) != assignment.node(dst))
        .map(|(_, _, amount)| amount)
        .sum();
    if layer.is_directed() {
        cells
    } else {
        cells / 2.0
    }
}

/// Remote share (0..=1) of the communication; 0 when there is none.
#[must_use]
pub fn remote_share(matrix: &CommMatrix, layer: Layer, assignment: &NodeAssignment) -> f64 {
    let load = crate::communication::load(matrix, layer);
    if load == 0.0 {
        0.0
    } else {
        remote_communication(matrix, layer, assignment) / load
    }
}

/// Load of each node with PUs: the sum of its threads' loads. Memory-only nodes have none and are left out.
#[must_use]
pub fn node_loads(thread_loads: &[f64], assignment: &NodeAssignment) -> Vec<f64> {
    let mut loads = vec![0.0; assignment.nodes];
    for (thread, load) in thread_loads.iter().enumerate() {
        loads[assignment.node(thread)] += load;
    }
    assignment.of_homes(&loads)
}

/// Load_std (CMLB eq. 6, with the missing square): standard deviation of the nodes' loads.
#[must_use]
pub fn load_deviation(node_loads: &[f64]) -> f64 {
    let n = node_loads.len() as f64;
    if n == 0.0 {
        return 0.0;
    }
    let mean = node_loads.iter().sum::<f64>() / n;
    (node_loads.iter().map(|l| (l - mean).powi(2)).sum::<f64>() / n).sqrt()
}

/// Largest node load over the mean, at least 1; 1 when there is no load.
#[must_use]
pub fn imbalance(node_loads: &[f64]) -> f64 {
    let total: f64 = node_loads.iter().sum();
    if total == 0.0 {
        return 1.0;
    }
    let largest = node_loads.iter().copied().fold(0.0, f64::max);
    largest * node_loads.len() as f64 / total
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaloc_model::LogicalNode;
    use proptest::prelude::*;

    #[test]
    fn ring_of_four_by_hand() {
        // 0 -> 1 -> 2 -> 3 -> 0, 10 each. Blocks {0,1} {2,3} cut 1 -> 2 and 3 -> 0: 20 of 40.
        let ring = CommMatrix::from_cells(4, [(0, 1, 10.), (1, 2, 10.), (2, 3, 10.), (3, 0, 10.)])
            .unwrap();
        let blocks = NodeAssignment::blocks(4, 2);
        assert_eq!(remote_communication(&ring, Layer::WriteRead, &blocks), 20.0);
        assert_eq!(remote_share(&ring, Layer::WriteRead, &blocks), 0.5);
        // The same ring without direction holds every pair twice and has the same answer.
        let both = ring.symmetrised();
        assert_eq!(
            remote_communication(&both, Layer::SharedLine, &blocks),
            20.0
        );
        assert_eq!(
            remote_share(&ring, Layer::WriteRead, &NodeAssignment::round_robin(4, 2)),
            1.0
        );
    }

    #[test]
    fn load_deviation_by_hand() {
        // Loads 1 + 2 and 3 + 6: 3 and 9, mean 6, sqrt((9 + 9) / 2) = 3; largest over mean 1.5.
        let loads = node_loads(&[1., 2., 3., 6.], &NodeAssignment::blocks(4, 2));
        assert_eq!(loads, [3.0, 9.0]);
        assert_eq!((load_deviation(&loads), imbalance(&loads)), (3.0, 1.5));
        assert_eq!((load_deviation(&[]), imbalance(&[0.0, 0.0])), (0.0, 1.0));
    }

    #[test]
    fn memory_only_nodes_do_not_count_in_the_deviation() {
        // Nodes 0 and 2 have PUs, node 1 is memory-only: loads 4 and 4 are level, not 4, 0 and 4.
        let homes = vec![LogicalNode(0), LogicalNode(2)];
        let assignment = NodeAssignment {
            nodes: 3,
            of_thread: vec![homes[0], homes[0], homes[1], homes[1]],
            homes,
        };
        let loads = node_loads(&[1., 3., 2., 2.], &assignment);
        assert_eq!(loads, [4.0, 4.0]);
        assert_eq!((load_deviation(&loads), imbalance(&loads)), (0.0, 1.0));
    }

    proptest! {
        #[test]
        fn ranges_scaling_and_renamed_nodes(
            cells in proptest::collection::vec(0u8..20, 36),
            loads in proptest::collection::vec(0u32..1000, 6),
            nodes in 1usize..4,
        ) {
            let cells: Vec<f64> = cells.into_iter().map(f64::from).collect();
            let matrix = CommMatrix::from_dense(6, &cells).unwrap();
            let of = NodeAssignment::round_robin(6, nodes);
            let share = remote_share(&matrix, Layer::WriteRead, &of);
            prop_assert!((0.0..=1.0).contains(&share));
            let alone = remote_share(&matrix, Layer::WriteRead, &NodeAssignment::blocks(6, 1));
            prop_assert_eq!(alone, 0.0);
            let last = nodes - 1;
            let renamed = NodeAssignment {
                nodes,
                homes: of.homes.clone(),
                of_thread: of.of_thread.iter().map(|n| LogicalNode::from_index(last - n.index())).collect(),
            };
            prop_assert_eq!(remote_share(&matrix, Layer::WriteRead, &renamed), share);
            let loads: Vec<f64> = loads.into_iter().map(f64::from).collect();
            let by_node = node_loads(&loads, &of);
            let deviation = load_deviation(&by_node);
            prop_assert!(deviation >= 0.0);
            // 1 for even loads, N when one node has all of it.
            prop_assert!((1.0 - 1e-12..=nodes as f64 + 1e-12).contains(&imbalance(&by_node)));
            let triple: Vec<f64> = by_node.iter().map(|l| 3.0 * l).collect();
            prop_assert!((load_deviation(&triple) - 3.0 * deviation).abs() < 1e-6);
        }
    }
}
