//! `weighted-interleave`: pages spread over all nodes with memory, memory-only nodes (CXL, HBM) included, in proportion
//! to the bandwidth that each delivers to the threads.
//!
//! The weights are the canonical ones of BWAP (Gureya et al., "Bandwidth-Aware Page Placement in NUMA", IPDPS 2020):
//! the weight of a memory node is the least bandwidth with which the nodes that have threads reach it,
//! over the sum of these bandwidths. BWAP measures the bandwidths while all these nodes read from all memory nodes at
//! once. Deviations:
//!
//! - Bandwidths are computed from the machine's description: those of controllers and links, shared by all reads that
//!   pass them. Every node with threads reads the same share of its data from a memory node, so the least
//!   bandwidth is the one that counts by construction.
//! - Memory-only nodes get what controllers and links have left: where a link is full, a line from them adds latency
//!   and no bandwidth.
//! - A node with threads counts by its accesses, not as one of equals.
//! - Without BWAP's second step, which moves pages towards the threads while the program runs.
//! - Weights may be given instead, one for each node.
//!
//! Pages are dealt in the order of their numbers, one sequence for the whole program (see `deal`): each
//! node's number of pages is within one page of its weight, and within two pages in each object, because an object
//! is a part of the sequence. A node whose memory holds less than its weight gets what fits, the others
//! share the rest by their weights; a node without memory gets nothing.

use numaloc_model::LogicalNode;

use super::PlacementPolicy;
use crate::bandwidth;
use crate::deal::deal;
use crate::error::PlaceError;
use crate::input::PlaceInput;
use crate::view::View;

/// Sum of the weights by which pages are dealt.
const PARTS: f64 = (1_u64 << 40) as f64;

/// The policy; see the module documentation.
pub struct WeightedInterleave;

impl PlacementPolicy for WeightedInterleave {
    fn name(&self) -> &'static str {
        "weighted-interleave"
    }

    fn summary(&self) -> &'static str {
        "spread pages in proportion to bandwidths"
    }

    fn source(&self) -> &'static str {
        "BWAP, Gureya et al. 2020"
    }

    fn check(&self, input: &PlaceInput) -> Result<(), PlaceError> {
        match input.weights {
            None if input.topology.hardware().is_none() => Err(PlaceError::NoBandwidth {
                policy: self.name(),
            }),
            None => Ok(()),
            Some(given) => check_given(given, input),
        }
    }

    fn preferred_nodes(&self, view: &View) -> Vec<Option<LogicalNode>> {
        let weights: Vec<u64> = shares(view)
            .iter()
            .map(|share| (share * PARTS) as u64)
            .collect();
        let nodes = deal(&weights, view.usage().pages().len());
        let nodes = nodes.into_iter().map(LogicalNode::from_index);
        nodes.map(Some).collect()
    }

    fn remark(&self, view: &View) -> Option<String> {
        let shares = shares(view);
        let shares: Vec<String> = shares
            .iter()
            .map(|share| format!("{:.1}", share * 100.0))
            .collect();
        let from = match view.weights() {
            Some(_) => "as given",
            None => "by the bandwidths of memory and links",
        };
        Some(format!(
            "share of the pages by node in percent, {from}: {}",
            shares.join(", ")
        ))
    }
}

fn check_given(weights: &[u32], input: &PlaceInput) -> Result<(), PlaceError> {
    let nodes = input.topology.nodes().len();
    if weights.len() != nodes {
        return Err(PlaceError::Weights {
            given: weights.len(),
            nodes,
        });
    }
    let mut weights = weights.iter().enumerate();
    let has_memory = |node| input.topology.memory_of(LogicalNode::from_index(node)) != Some(0);
    match weights.any(|(node, &weight)| weight > 0 && has_memory(node)) {
        true => Ok(()),
        false => Err(PlaceError::ZeroWeights),
    }
}

/// Share of the pages for each node: by its weight, and no more than fit there.
fn shares(view: &View) -> Vec<f64> {
    let mut weights: Vec<f64> = match view.weights() {
        Some(given) => given.iter().copied().map(f64::from).collect(),
        None => bandwidth::rates(view.topology(), &readers(view)).expect("bandwidths, as checked"),
    };
    for (node, weight) in weights.iter_mut().enumerate() {
        if view.topology().memory_of(LogicalNode::from_index(node)) == Some(0) {
            *weight = 0.0;
        }
    }
    if weights.iter().all(|&weight| weight == 0.0) {
        // No memory that all threads reach.
        for node in view.candidates() {
            weights[node.index()] = 1.0;
        }
    }
    let pages = view.usage().pages().len() as f64;
    let room: Vec<f64> = view
        .capacity()
        .iter()
        .map(|&room| room as f64 / pages)
        .collect();
    within(&weights, &room)
}

/// Share of the accesses that threads of each node make; without accesses, the nodes with PUs are equals.
fn readers(view: &View) -> Vec<f64> {
    let mut counts = view.counts();
    let mut all = view.counts();
    for page in view.usage().pages() {
        view.by_node(page, &mut counts);
        for (all, count) in all.iter_mut().zip(&counts) {
            *all += count;
        }
    }
    if all.iter().all(|&count| count == 0) {
        for node in view.topology().nodes_with_pus() {
            all[node.index()] = 1;
        }
    }
    let total: u64 = all.iter().sum();
    all.iter()
        .map(|&count| count as f64 / total as f64)
        .collect()
}

/// Shares by weight, each at most its `room`; what does not fit on one node is shared by the others. If the room of all
/// is not enough, shares are by weight alone.
fn within(weights: &[f64], room: &[f64]) -> Vec<f64> {
    let mut full = vec![false; weights.len()];
    loop {
        let of = |full: &[bool], wanted: bool, values: &[f64]| -> f64 {
            let values = values.iter().zip(full);
            values
                .filter(|(_, full)| **full == wanted)
                .map(|(value, _)| value)
                .sum()
        };
        let (open, rest) = (of(&full, false, weights), 1.0 - of(&full, true, room));
        if open == 0.0 {
            let total: f64 = weights.iter().sum();
            return weights.iter().map(|weight| weight / total).collect();
        }
        let shares: Vec<f64> = (0..weights.len())
            .map(|node| match full[node] {
                true => room[node],
                false => weights[node] / open * rest,
            })
            .collect();
        let over = |node: usize| !full[node] && shares[node] > room[node];
        let over: Vec<usize> = (0..weights.len()).filter(|&node| over(node)).collect();
        if over.is_empty() {
            return shares;
        }
        for node in over {
            full[node] = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::within;
    use crate::test_support::{machine, mapping, nodes_of, usage};
    use crate::{PlaceError, PlaceInput, place, policy};
    use numaloc_model::pages::PageHead;
    use numaloc_model::{
        LogicalNode, ObjectIdx, PageNumber, PageUsage, Placement, ThreadAccess, ThreadIdx,
    };

    const NAME: &str = "weighted-interleave";

    fn used(pages: usize, thread: u32) -> PageUsage {
        usage(&vec![&[(thread, 1)][..]; pages])
    }

    fn counts(nodes: &[i64], of: usize) -> Vec<usize> {
        let count = |node: usize| nodes.iter().filter(|&&n| n == node as i64).count();
        (0..of).map(count).collect()
    }

    #[test]
    fn given_weights_decide_and_0_gives_nothing() {
        let pages = used(8, 0);
        let (topology, mapping) = (machine(3), mapping(&[0]));
        let mut input = PlaceInput::new(&pages, &mapping, &topology);
        input.weights = Some(&[3, 0, 1]);
        assert_eq!(nodes_of(NAME, &input), [0, 0, 2, 0, 0, 0, 2, 0]);
    }

    #[test]
    fn memory_only_nodes_get_pages_by_their_bandwidth() {
        // One socket of cxl-2s reads: 215, 24, 76.8 and 0 GB/s, as in `bandwidth`; 3158 pages are 2150, 240, 768.
        let topology = numaloc_topology::resolve("cxl-2s").unwrap();
        let (pages, on_one) = (used(3158, 0), mapping(&[0]));
        let input = PlaceInput::new(&pages, &on_one, &topology);
        assert_eq!(counts(&nodes_of(NAME, &input), 4), [2150, 240, 768, 0]);
        // On both sockets the links between them are full without the expanders.
        let pages = usage(&[&[(0, 1), (1, 1)][..]; 256]);
        let on_both = mapping(&[0, 32]);
        let input = PlaceInput::new(&pages, &on_both, &topology);
        assert_eq!(counts(&nodes_of(NAME, &input), 4), [128, 0, 128, 0]);
    }

    #[test]
    fn a_node_gets_no_more_than_fits_there_and_the_others_share_the_rest() {
        let pages = used(100, 0);
        let (topology, mapping) = (machine(4), mapping(&[0]));
        let mut input = PlaceInput::new(&pages, &mapping, &topology);
        input.weights = Some(&[6, 2, 1, 1]);
        // 60 : 20 : 10 : 10 with room for 20 on node 0 and none on node 3: 80 are shared 2 : 1.
        input.capacity = Some(&[20, 1000, 1000, 0]);
        let placed = place(policy(NAME).unwrap(), &input).unwrap();
        let of = |node| {
            placed
                .placement
                .node
                .iter()
                .filter(|n| **n == Some(LogicalNode(node)))
                .count()
        };
        assert_eq!([of(0), of(3), placed.spilled as usize], [20, 0, 0]);
        assert!((53..=54).contains(&of(1)) && of(1) + of(2) == 80);
        // Too little room in all: what does not fit is reported as for every policy.
        input.capacity = Some(&[20, 10, 10, 10]);
        let placed = place(policy(NAME).unwrap(), &input).unwrap();
        assert_eq!(placed.left_to_kernel(), 50);
    }

    #[test]
    fn shares_never_exceed_the_room() {
        assert_eq!(within(&[1.0, 1.0], &[9.0, 9.0]), [0.5, 0.5]);
        assert_eq!(within(&[8.0, 1.0, 1.0], &[0.1, 0.3, 9.0]), [0.1, 0.3, 0.6]);
        assert_eq!(within(&[3.0, 1.0], &[0.1, 0.1]), [0.75, 0.25]);
    }

    #[test]
    fn every_object_is_spread_by_the_weights() {
        // Objects of 1 to 60 pages, in the order of their addresses.
        let mut pages = PageUsage::new(4096);
        let mut objects = Vec::new();
        for object in 0..60_u32 {
            for object_page in 0..=object {
                let number = PageNumber(pages.pages().len() as u64);
                objects.push(object);
                let head = PageHead {
                    number,
                    object: Some(ObjectIdx(object)),
                    object_page: u64::from(object_page),
                    first_touch: Some(ThreadIdx(0)),
                    first_touch_time: 0,
                    policy: None,
                };
                let access = ThreadAccess {
                    thread: ThreadIdx(0),
                    reads: 1,
                    writes: 0,
                };
                pages.push(head, vec![access]);
            }
        }
        let (topology, mapping) = (machine(4), mapping(&[0]));
        let mut input = PlaceInput::new(&pages, &mapping, &topology);
        let weights = [13, 3, 13, 3];
        input.weights = Some(&weights);
        let Placement { node } = place(policy(NAME).unwrap(), &input).unwrap().placement;
        let count = |object: Option<u32>, at: u32| {
            let of = node
                .iter()
                .zip(&objects)
                .filter(|(_, of)| object.is_none_or(|o| o == **of));
            of.filter(|(node, _)| **node == Some(LogicalNode(at)))
                .count() as f64
        };
        for (at, weight) in (0..).zip(weights) {
            let share = f64::from(weight) / 32.0;
            assert!((count(None, at) - share * node.len() as f64).abs() < 1.0);
            for object in 0..60 {
                let wanted = share * f64::from(object + 1);
                assert!((count(Some(object), at) - wanted).abs() < 2.0, "{object}");
            }
        }
    }

    #[test]
    fn weights_that_do_not_fit_the_machine_are_refused() {
        let pages = used(8, 0);
        let (topology, mapping) = (machine(2), mapping(&[0]));
        let input = PlaceInput::new(&pages, &mapping, &topology);
        let error = |weights| {
            let input = PlaceInput {
                weights,
                ..input.clone()
            };
            place(policy(NAME).unwrap(), &input).unwrap_err()
        };
        assert_eq!(
            error(Some(&[1, 2, 3])),
            PlaceError::Weights { given: 3, nodes: 2 }
        );
        assert_eq!(error(Some(&[0, 0])), PlaceError::ZeroWeights);
        assert_eq!(error(None), PlaceError::NoBandwidth { policy: NAME });
    }
}
