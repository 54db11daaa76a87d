//! `locality`: every page on the node that accesses it most (Diener et al. 2015, equation 7).
//!
//! The paper does not specify ties: the first toucher's node if it is among the tied, else the lowest. A page without
//! accesses is left to the kernel.

use numaloc_model::LogicalNode;

use super::PlacementPolicy;
use crate::view::View;

/// The policy; see the module documentation.
pub struct Locality;

impl PlacementPolicy for Locality {
    fn name(&self) -> &'static str {
        "locality"
    }

    fn summary(&self) -> &'static str {
        "every page on the node that accesses it most"
    }

    fn source(&self) -> &'static str {
        "Diener et al. 2015, eq. 7"
    }

    fn preferred_nodes(&self, view: &View) -> Vec<Option<LogicalNode>> {
        view.page_by_page(|page, counts| view.max_node(page, counts))
    }
}

#[cfg(test)]
mod tests {
    use crate::PlaceInput;
    use crate::test_support::{machine, mapping, nodes_of, usage};

    #[test]
    fn goes_to_the_node_with_most_accesses_not_the_thread_with_most() {
        // Threads 0 and 1 on node 0, threads 2 and 3 on node 1 (the machine has one PU per node, so
        // two threads share it). Page 0: thread 2 has most (5), but node 0 has 4 + 4 = 8 > 5.
        // Page 1: 3 against 3, a tie; thread 3 touched it first, so node 1.
        // Page 2: no accesses.
        let pages = usage(&[&[(2, 5), (0, 4), (1, 4)], &[(3, 3), (0, 3)], &[]]);
        let (topology, mapping) = (machine(2), mapping(&[0, 0, 1, 1]));
        let input = PlaceInput::new(&pages, &mapping, &topology);
        assert_eq!(nodes_of("locality", &input), [0, 1, -1]);
    }
}
