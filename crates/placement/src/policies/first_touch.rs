//! `first-touch`: the kernel places a page on the node of the PU that touches it first.
//!
//! The baseline of every comparison. No page is planned, so none is spilled; a run with this policy differs from the
//! operating system's default only in the thread mapping.

use numaloc_model::LogicalNode;

use super::PlacementPolicy;
use crate::view::View;

/// The policy; see the module documentation.
pub struct FirstTouch;

impl PlacementPolicy for FirstTouch {
    fn name(&self) -> &'static str {
        "first-touch"
    }

    fn summary(&self) -> &'static str {
        "leave every page to the kernel: the node of the thread that touches it first"
    }

    fn source(&self) -> &'static str {
        "Linux"
    }

    fn preferred_nodes(&self, view: &View) -> Vec<Option<LogicalNode>> {
        vec![None; view.usage().pages().len()]
    }
}

#[cfg(test)]
mod tests {
    use crate::test_support::{machine, mapping, usage};
    use crate::{PlaceInput, place, policy};
    use numaloc_model::LogicalNode;

    #[test]
    fn leaves_pages_to_the_kernel_which_puts_them_with_the_first_toucher() {
        // Thread 1 (node 1) touches page 0 first although thread 0 uses it more.
        let pages = usage(&[&[(1, 1), (0, 9)], &[(0, 4)]]);
        let (topology, mapping) = (machine(2), mapping(&[0, 1]));
        let input = PlaceInput::new(&pages, &mapping, &topology);
        let placed = place(policy("first-touch").unwrap(), &input).unwrap();
        assert_eq!(placed.left_to_kernel(), 2);
        assert_eq!(
            placed.expected(&input),
            [1, 0].map(|n| Some(LogicalNode(n)))
        );
    }
}
