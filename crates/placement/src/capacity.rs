//! Adapts a placement to the capacities of the nodes.
//!
//! Pages are assigned by descending accesses (ties by ascending page); a page whose preferred node is full goes to the
//! nearest node with room (ties: the lower node), memory-only nodes included. If all are full, the page is left to the
//! kernel, which has to swap or fail in any case.

use numaloc_model::LogicalNode;
use std::collections::BTreeMap;

use crate::view::View;

/// Pages that did not fit on their preferred node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spill {
    /// Pages by (preferred node, node used instead; `None`: left to the kernel).
    pub moved: BTreeMap<(LogicalNode, Option<LogicalNode>), u64>,
}

impl Spill {
    /// Number of pages that did not get their preferred node.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.moved.values().sum()
    }

    /// One sentence per full node and substitute.
    pub(crate) fn describe(&self, capacity: &[u64], out: &mut Vec<String>) {
        for ((preferred, taken), pages) in &self.moved {
            let room = capacity[preferred.index()];
            out.push(match taken {
                Some(node) => format!(
                    "{pages} pages did not fit on {preferred} (room for {room}) and go to {node}"
                ),
                None => format!(
                    "{pages} pages did not fit on {preferred} (room for {room}) nor anywhere else and \
                     are left to the kernel"
                ),
            });
        }
    }
}

/// Assigns preferred nodes within the capacities: node by page of the view, and the pages that did not fit.
pub(crate) fn fit_to_capacity(
    preferred: &[Option<LogicalNode>],
    view: &View,
    capacity: &[u64],
) -> (Vec<Option<LogicalNode>>, Spill) {
    let mut demand = vec![0_u64; capacity.len()];
    for node in preferred.iter().flatten() {
        demand[node.index()] += 1;
    }
    let mut spill = Spill::default();
    if demand.iter().zip(capacity).all(|(want, room)| want <= room) {
        return (preferred.to_vec(), spill);
    }
    let mut room = capacity.to_vec();
    let mut fitted = preferred.to_vec();
    for at in hottest_first(view) {
        let Some(preferred) = preferred[at] else {
            continue;
        };
        let taken = nearest_with_room(preferred, view, &room);
        if let Some(node) = taken {
            room[node.index()] -= 1;
        }
        if taken != Some(preferred) {
            *spill.moved.entry((preferred, taken)).or_default() += 1;
        }
        fitted[at] = taken;
    }
    (fitted, spill)
}

/// Page indexes by descending accesses, ties by ascending page number.
pub(crate) fn hottest_first(view: &View) -> Vec<usize> {
    let usage = view.usage();
    let mut order: Vec<(u64, usize)> = usage
        .pages()
        .iter()
        .enumerate()
        .map(|(at, page)| (usage.accesses(page).iter().map(|a| a.total()).sum(), at))
        .collect();
    order.sort_unstable_by_key(|&(accesses, at)| (std::cmp::Reverse(accesses), at));
    order.into_iter().map(|(_, at)| at).collect()
}

fn nearest_with_room(preferred: LogicalNode, view: &View, room: &[u64]) -> Option<LogicalNode> {
    if room[preferred.index()] > 0 {
        return Some(preferred);
    }
    (0..room.len())
        .filter(|&node| room[node] > 0)
        .map(LogicalNode::from_index)
        .min_by(|&a, &b| {
            let distance = |node| view.topology().node_distance(preferred, node);
            distance(a).total_cmp(&distance(b)).then(a.cmp(&b))
        })
}

#[cfg(test)]
mod tests {
    use crate::test_support::{machine, mapping, usage};
    use crate::{PlaceInput, place, policy};
    use numaloc_model::LogicalNode;

    #[test]
    fn the_most_used_pages_keep_their_node_and_the_rest_go_to_the_nearest_with_room() {
        // Everything belongs to node 0, which holds 2 pages; node 1 (distance 30) is farther than
        // node 2 (distance 15), which holds one. Accesses 5, 9, 7, 1: pages 1 and 2 stay, page 0 (the
        // hotter of the rest) takes node 2, page 3 node 1.
        let pages = usage(&[&[(0, 5)], &[(0, 9)], &[(0, 7)], &[(0, 1)]]);
        let topology = machine(3)
            .with_node_distances(vec![10., 30., 15., 30., 10., 30., 15., 30., 10.])
            .unwrap();
        let mapping = mapping(&[0]);
        let mut input = PlaceInput::new(&pages, &mapping, &topology);
        input.capacity = Some(&[2, 5, 1]);
        let placed = place(policy("locality").unwrap(), &input).unwrap();
        assert_eq!(
            placed.placement.node,
            [2, 0, 0, 1].map(|n| Some(LogicalNode(n)))
        );
        assert_eq!(placed.spilled, 2);
        assert_eq!(placed.diagnostics.len(), 2);
        // With room for three pages in all, the least used is left to the kernel.
        input.capacity = Some(&[2, 0, 1]);
        let placed = place(policy("locality").unwrap(), &input).unwrap();
        assert_eq!(placed.placement.node[3], None);
        assert!(
            placed.diagnostics[0].contains("left to the kernel"),
            "{:?}",
            placed.diagnostics
        );
    }
}
