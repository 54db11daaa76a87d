//! `mixed`: a page with a clear main user goes there, the others are spread (Diener et al. 2015,
//! equation 8).
//!
//! `E_page > min_exclusivity` (strictly) is decided in floating point on exact integer counts; a page
//! at exactly the threshold is interleaved. A page nobody accessed is interleaved too.

use numaloc_model::LogicalNode;

use super::PlacementPolicy;
use crate::view::View;

/// See the module.
pub struct Mixed;

impl PlacementPolicy for Mixed {
    fn name(&self) -> &'static str {
        "mixed"
    }

    fn about(&self) -> &'static str {
        "exclusive pages on their main user's node, the others interleaved (equation 8)"
    }

    fn wish(&self, view: &View) -> Vec<Option<LogicalNode>> {
        let mut counts = view.counts();
        let pages = view.usage().pages().iter();
        pages
            .map(|page| {
                view.by_node(page, &mut counts);
                let most = counts.iter().copied().max().unwrap_or(0);
                let total: u64 = counts.iter().sum();
                if most as f64 > view.min_exclusivity() * total as f64 {
                    view.max_node(page, &counts)
                } else {
                    Some(view.interleaved(page))
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::PlaceInput;
    use crate::test_support::{machine, mapping, nodes_of, usage};

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
        // Between its two relatives: with 0 it is locality (page 3 apart), with 1 interleave.
        input.min_exclusivity = 0.0;
        assert_eq!(
            nodes_of("mixed", &input)[..3],
            nodes_of("locality", &input)[..3]
        );
        input.min_exclusivity = 1.0;
        assert_eq!(nodes_of("mixed", &input), nodes_of("interleave", &input));
    }
}
