//! `random`: every page on a node drawn from the seed (Diener et al. 2015, section III-1). Shows whether placement
//! matters at all; the same seed draws the same nodes.

use numaloc_model::LogicalNode;

use super::PlacementPolicy;
use crate::random::SplitMix64;
use crate::view::View;

/// The policy; see the module documentation.
pub struct Random;

impl PlacementPolicy for Random {
    fn name(&self) -> &'static str {
        "random"
    }

    fn summary(&self) -> &'static str {
        "every page on a node drawn from the seed"
    }

    fn source(&self) -> &'static str {
        "Diener et al. 2015, section III-1"
    }

    fn preferred_nodes(&self, view: &View) -> Vec<Option<LogicalNode>> {
        let mut draw = SplitMix64::new(view.seed());
        let nodes = view.candidates();
        let pages = view.usage().pages().iter();
        pages
            .map(|_| Some(nodes[draw.below(nodes.len())]))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::PlaceInput;
    use crate::test_support::{machine, mapping, nodes_of, usage};

    #[test]
    fn the_seed_decides_and_every_node_gets_its_share() {
        let table = vec![[(0, 1)]; 4000];
        let rows: Vec<&[(u32, u64)]> = table.iter().map(|row| &row[..]).collect();
        let pages = usage(&rows);
        let (topology, mapping) = (machine(4), mapping(&[0]));
        let mut input = PlaceInput::new(&pages, &mapping, &topology);
        let first = nodes_of("random", &input);
        assert_eq!(first, nodes_of("random", &input));
        input.seed = 1;
        assert_ne!(first, nodes_of("random", &input));
        // 4000 draws over 4 nodes: 1000 each, standard deviation sqrt(4000 * 1/4 * 3/4) = 27.4; five
        // of those either way.
        for node in 0..4 {
            let share = first.iter().filter(|&&n| n == node).count();
            assert!((863..=1137).contains(&share), "node {node} got {share}");
        }
    }
}
