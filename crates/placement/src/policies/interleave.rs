//! `interleave`: `node[p] = addr(p) mod N` (Diener et al. 2015, equation 6), with the page number as
//! address and the nodes that have PUs as the N nodes, in logical order.

use numaloc_model::LogicalNode;

use super::PlacementPolicy;
use crate::view::View;

/// The policy; see the module documentation.
pub struct Interleave;

impl PlacementPolicy for Interleave {
    fn name(&self) -> &'static str {
        "interleave"
    }

    fn summary(&self) -> &'static str {
        "spread pages over the nodes by page number"
    }

    fn source(&self) -> &'static str {
        "Diener et al. 2015, eq. 6"
    }

    fn preferred_nodes(&self, view: &View) -> Vec<Option<LogicalNode>> {
        let pages = view.usage().pages().iter();
        pages.map(|page| Some(view.interleaved(page))).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::PlaceInput;
    use crate::test_support::{machine, mapping, nodes_of, usage};

    #[test]
    fn follows_equation_6() {
        // Pages 0..5 on 3 nodes: 0 1 2 0 1, regardless of their users.
        let pages = usage(&[&[(0, 1)], &[(0, 1)], &[(0, 1)], &[(0, 1)], &[(0, 1)]]);
        let (topology, mapping) = (machine(3), mapping(&[0]));
        let input = PlaceInput::new(&pages, &mapping, &topology);
        assert_eq!(nodes_of("interleave", &input), [0, 1, 2, 0, 1]);
    }
}
