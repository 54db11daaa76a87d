//! Runs a page policy: checks the input, merges counts to the page size, asks the policy, respects the capacities, and
//! gives every page of the profile its node.

use numaloc_model::{LogicalNode, Placement, ThreadIdx};

use crate::capacity::fit_to_capacity;
use crate::error::PlaceError;
use crate::input::PlaceInput;
use crate::policies::PlacementPolicy;
use crate::unplanned::kernels_choice;
use crate::view::View;

/// A page policy's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// By page of [`PlaceInput::pages`] (the profile's pages, whatever the page size).
    pub placement: Placement,
    /// Pages (of the placement's page size) that did not fit on the node the policy chose.
    pub spilled: u64,
    /// Remarks for the user, one sentence each.
    pub diagnostics: Vec<String>,
}

/// Runs a policy. Deterministic for one input and seed. Time: that of the policy plus
/// O(pages log pages).
///
/// # Errors
/// [`PlaceError`] when mapping, page size, capacities or parameters do not fit pages and machine.
pub fn place(policy: &dyn PlacementPolicy, input: &PlaceInput) -> Result<Placed, PlaceError> {
    check(input)?;
    policy.check(input)?;
    let view = View::new(input);
    let preferred = policy.preferred_nodes(&view);
    debug_assert_eq!(preferred.len(), view.usage().pages().len());
    let capacity = input.capacities();
    let (nodes, spill) = fit_to_capacity(&preferred, &view, &capacity);
    let placement = Placement {
        node: (0..input.pages.pages().len())
            .map(|page| nodes[view.merged(page)])
            .collect(),
    };
    let mut diagnostics: Vec<String> = policy.remark(&view).into_iter().collect();
    spill.describe(&capacity, &mut diagnostics);
    Ok(Placed {
        placement,
        spilled: spill.pages(),
        diagnostics,
    })
}

pub(crate) fn check(input: &PlaceInput) -> Result<(), PlaceError> {
    let recorded = input.pages.page_size();
    if recorded == 0 || input.page_size < recorded || !input.page_size.is_multiple_of(recorded) {
        return Err(PlaceError::PageSize {
            page_size: input.page_size,
            recorded,
        });
    }
    if !(0.0..=1.0).contains(&input.min_exclusivity) {
        return Err(PlaceError::MinExclusivity {
            given: input.min_exclusivity,
        });
    }
    let nodes = input.topology.nodes().len();
    let given = [input.capacity, input.capacity_bytes];
    if let Some(capacity) = given.into_iter().flatten().find(|all| all.len() != nodes) {
        return Err(PlaceError::Capacity {
            given: capacity.len(),
            nodes,
        });
    }
    let pus = input.topology.pus().len();
    for (thread, pu) in input.mapping.pu.iter().enumerate() {
        if pu.index() >= pus {
            return Err(PlaceError::NoSuchPu {
                thread: ThreadIdx::from_index(thread),
                pu: pu.0,
                pus,
            });
        }
    }
    let mapped = input.mapping.pu.len();
    for page in input.pages.pages() {
        // A page's accesses ascend by thread: the last is the highest.
        let last = input
            .pages
            .accesses(page)
            .last()
            .map(|access| access.thread);
        for thread in last.into_iter().chain(page.first_touch) {
            if thread.index() >= mapped {
                return Err(PlaceError::UnmappedThread { thread, mapped });
            }
        }
    }
    Ok(())
}

impl Placed {
    /// Number of pages that the policy leaves to the kernel.
    #[must_use]
    pub fn left_to_kernel(&self) -> usize {
        self.placement.node.iter().filter(|n| n.is_none()).count()
    }

    /// Expected node of each page: the planned node, else the first toucher's.
    #[must_use]
    pub fn expected(&self, input: &PlaceInput) -> Vec<Option<LogicalNode>> {
        let node_of = |thread: ThreadIdx| {
            let pu = input.mapping.pu[thread.index()];
            let home = input.topology.node_of(pu);
            input.topology.nearest_memory(home)
        };
        self.placement
            .node
            .iter()
            .zip(input.pages.pages())
            .map(|(node, page)| {
                let toucher = page.first_touch.map(node_of);
                node.or_else(|| kernels_choice(input.topology, page, toucher))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy;
    use crate::test_support::{machine, mapping, usage};

    #[test]
    fn input_that_does_not_fit_is_refused_with_both_numbers() {
        let pages = usage(&[&[(0, 1), (2, 5)]]);
        let topology = machine(2);
        let locality = policy("locality").unwrap();
        let short = mapping(&[0, 1]);
        let input = PlaceInput::new(&pages, &short, &topology);
        let error = place(locality, &input).unwrap_err();
        assert_eq!(
            error.to_string(),
            "T2 touches pages, but the mapping has only 2 threads"
        );
        let far = mapping(&[0, 1, 9]);
        let error = place(locality, &PlaceInput::new(&pages, &far, &topology)).unwrap_err();
        assert!(error.to_string().contains("PU 9"), "{error}");
        let good = mapping(&[0, 1, 1]);
        let mut input = PlaceInput::new(&pages, &good, &topology);
        input.page_size = 6000;
        assert!(matches!(
            place(locality, &input),
            Err(PlaceError::PageSize { .. })
        ));
        input.page_size = 4096;
        input.capacity = Some(&[1]);
        assert!(matches!(
            place(locality, &input),
            Err(PlaceError::Capacity { .. })
        ));
        input.capacity = None;
        input.min_exclusivity = f64::NAN;
        assert!(matches!(
            place(locality, &input),
            Err(PlaceError::MinExclusivity { .. })
        ));
    }

    #[test]
    fn pages_that_share_a_larger_page_get_one_node() {
        // 4 KiB: page 0 belongs to node 0 (9:1), page 1 to node 1 (0:20). As one 8 KiB page the
        // counts are 9:21, so both go to node 1.
        let pages = usage(&[&[(0, 9), (1, 1)], &[(1, 20)], &[(0, 3)]]);
        let (topology, mapping) = (machine(2), mapping(&[0, 1]));
        let locality = policy("locality").unwrap();
        let mut input = PlaceInput::new(&pages, &mapping, &topology);
        let small = place(locality, &input).unwrap().placement.node;
        assert_eq!(small, [0, 1, 0].map(|n| Some(LogicalNode(n))));
        input.page_size = 8192;
        let large = place(locality, &input).unwrap().placement.node;
        assert_eq!(large, [1, 1, 0].map(|n| Some(LogicalNode(n))));
    }
}
