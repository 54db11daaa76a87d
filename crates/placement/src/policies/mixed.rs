//! `mixed`: a page with a dominant user goes to that user's node, the others are interleaved (Diener et al. 2015,
//! equation 8).
//!
//! `E_page > min_exclusivity` (strictly) is decided in floating point on exact integer counts; a page exactly at the
//! threshold is interleaved, and so is a page without accesses.

use numaloc_model::LogicalNode;

use super::PlacementPolicy;
use crate::view::View;

/// The policy; see the module documentation.
pub struct Mixed;

impl PlacementPolicy for Mixed {
    fn name(&self) -> &'static str {
        "mixed"
    }

    fn summary(&self) -> &'static str {
        "exclusive pages at their main user, others interleaved"
    }

    fn source(&self) -> &'static str {
        "Diener et al. 2015, eq. 8"
    }

    fn preferred_nodes(&self, view: &View) -> Vec<Option<LogicalNode>> {
        view.page_by_page(|page, counts| {
            let most = counts.iter().copied().max().unwrap_or(0);
            let total: u64 = counts.iter().sum();
            if most as f64 > view.min_exclusivity() * total as f64 {
                view.max_node(page, counts)
            } else {
                Some(view.interleaved(page))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::PlaceInput;
    use crate::test_support::{machine, mapping, nodes_of, usage};
    use proptest::prelude::*;

    proptest! {
        /// The paper's statement: mixed lies between its two components. Every page is where one of the two puts it,
        /// and no node has more local accesses to a page than locality's, so the remote accesses lie between theirs.
        #[test]
        fn lies_between_locality_and_interleave(
            table in prop::collection::vec(prop::collection::vec((0_u32..4, 1_u64..2000), 1..5), 1..60),
            min_exclusivity in 0.0_f64..1.0,
        ) {
            let rows: Vec<&[(u32, u64)]> = table.iter().map(|row| &row[..]).collect();
            let pages = usage(&rows);
            let (topology, mapping) = (machine(4), mapping(&[0, 1, 2, 3]));
            let mut input = PlaceInput::new(&pages, &mapping, &topology);
            input.min_exclusivity = min_exclusivity;
            let [least, mixed, most] = ["locality", "mixed", "interleave"].map(|name| nodes_of(name, &input));
            for (page, node) in mixed.iter().enumerate() {
                prop_assert!([least[page], most[page]].contains(node));
            }
            // Thread t runs on node t.
            let remote = |nodes: &[i64]| -> u64 {
                let accesses = table.iter().zip(nodes).flat_map(|(row, node)| row.iter().map(move |a| (a, node)));
                accesses.filter(|((t, _), node)| i64::from(*t) != **node).map(|((_, n), _)| n).sum()
            };
            prop_assert!(remote(&least) <= remote(&mixed) && remote(&mixed) <= remote(&most));
        }
    }

    #[test]
    fn the_threshold_is_strict() {
        // Page 0: 91 of 100 from node 1, exclusivity 0.91 > 0.90: node 1 (interleave says 0).
        // Page 1: 90 of 100 from node 0, exclusivity 0.90: interleave says 1.
        // Page 2: 60 of 100: interleave says 0. Page 3: never accessed: 1.
        let pages = usage(&[
            &[(1, 91), (0, 9)],
            &[(0, 90), (1, 10)],
            &[(1, 60), (0, 40)],
            &[],
        ]);
        let (topology, mapping) = (machine(2), mapping(&[0, 1]));
        let mut input = PlaceInput::new(&pages, &mapping, &topology);
        assert_eq!(nodes_of("mixed", &input), [1, 1, 0, 1]);
        // Between its components: with 0 it is locality (except for page 3), with 1 interleave.
        input.min_exclusivity = 0.0;
        assert_eq!(
            nodes_of("mixed", &input)[..3],
            nodes_of("locality", &input)[..3]
        );
        input.min_exclusivity = 1.0;
        assert_eq!(nodes_of("mixed", &input), nodes_of("interleave", &input));
    }
}
