//! Page metrics: exclusivity, balance and accuracy.
//!
//! Implements Diener et al. "Locality vs. Balance" (2015) section II eq. 1-5 and OPT (2015) section
//! 5.1 eq. 5-9. `MemAcc[p][n]` is the number of accesses to page `p` by threads on node `n`, `N` the
//! number of nodes:
//!
//! | metric | formula | range |
//! |---|---|---|
//! | `E_page` | max over n of MemAcc / sum over n | 1/N..=1 |
//! | `E_app` | mean of E_page, weighted by accesses | 1/N..=1 |
//! | `B_pages` | 1 - (max - min) / sum of the pages that lie on each node | 0..=1 |
//! | `B_acc` | the same of the accesses that each node's memory answers | 0..=1 |
//! | `Acc_page`, `Acc_app` | share of the pages (of their accesses) on the node that uses them most | 0..=1 |
//!
//! Readings where the paper is unclear:
//! - Eq. 4 sums accesses *from* a node; the text and Algorithm 1 of the paper charge the node that *stores* the page,
//!   because its controller serves them. We do the latter.
//! - `B` is 0 only if one of the nodes holds everything: for N nodes, loads (0, 1, 1, ...) are not 0.
//! - Pages without accesses have no exclusivity and are skipped. If several nodes use a page most, any of them is the
//!   right one for `Acc_page`.
//! - A page whose node is not known (no placement, first touch not observed) counts in neither balance nor accuracy;
//!   `unplaced` counts such pages.
//!
//! Cost: O(page cells + pages N); memory O(N) in addition to the result.

use numaloc_model::pages::Page;
use numaloc_model::{LogicalNode, PageUsage, Placement, ThreadAccess};

use crate::assignment::NodeAssignment;

/// Bins of [`PageMetrics::exclusivity_pages`]: 20 of 5 % each.
pub const EXCLUSIVITY_BINS: usize = 20;

/// The page metrics of a run for one assignment of threads and one placement of pages.
#[derive(Clone, Debug, PartialEq)]
pub struct PageMetrics {
    /// Bytes per page.
    pub page_size: u64,
    /// Pages with at least one access.
    pub pages: u64,
    /// Accesses to them.
    pub accesses: u64,
    /// `E_app`; `None` without accesses. Also the largest share of accesses that can be local.
    pub exclusivity: Option<f64>,
    /// Mean of `E_page` over pages, not weighted.
    pub mean_page_exclusivity: Option<f64>,
    /// Pages by exclusivity: bin `b` counts `E_page` in `(b/20, (b+1)/20]`.
    pub exclusivity_pages: [u64; EXCLUSIVITY_BINS],
    /// Accesses to the pages of each bin.
    pub exclusivity_accesses: [u64; EXCLUSIVITY_BINS],
    /// Pages on each node.
    pub node_pages: Vec<u64>,
    /// Accesses that each node's memory serves.
    pub node_accesses: Vec<u64>,
    /// `B_pages`; `None` if no page's node is known.
    pub page_balance: Option<f64>,
    /// `B_acc`; `None` if no page's node is known.
    pub access_balance: Option<f64>,
    /// Share of the placed pages on the node that uses them most.
    pub page_accuracy: Option<f64>,
    /// The same, weighted by accesses.
    pub access_accuracy: Option<f64>,
    /// Share of the accesses to placed pages that come from the page's own node.
    pub local_share: Option<f64>,
    /// Pages whose node is not known.
    pub unplaced: u64,
}

/// The placement by first touch: every page on the node of the thread that touched it first, except those for which the
/// program has set a memory policy.
#[must_use]
pub fn first_touch(usage: &PageUsage, assignment: &NodeAssignment) -> Placement {
    Placement {
        node: usage
            .pages()
            .iter()
            .map(|page| assignment.home(page))
            .collect(),
    }
}

/// Every page on the node that uses it most (the lowest of equals): no placement has more local accesses.
#[must_use]
pub fn most_used(usage: &PageUsage, assignment: &NodeAssignment) -> Placement {
    let mut by_node = vec![0u64; assignment.nodes];
    let mut node = |page: &Page| {
        usage.by_node(page, |thread| assignment.node(thread.index()), &mut by_node);
        let most = by_node.iter().copied().max().filter(|&most| most > 0)?;
        let at = by_node.iter().position(|&count| count == most)?;
        Some(LogicalNode::from_index(at))
    };
    Placement {
        node: usage.pages().iter().map(&mut node).collect(),
    }
}

/// `E_page` of one page from its accesses by node; `None` without accesses.
#[must_use]
pub fn page_exclusivity(by_node: &[u64]) -> Option<f64> {
    let sum: u64 = by_node.iter().sum();
    let max = by_node.iter().copied().max().unwrap_or(0);
    (sum > 0).then(|| max as f64 / sum as f64)
}

/// `B` (data mapping eq. 3, 5) of amounts by node; `None` if all are zero.
#[must_use]
pub fn balance(by_node: &[u64]) -> Option<f64> {
    let sum: u64 = by_node.iter().sum();
    let (max, min) = (by_node.iter().max()?, by_node.iter().min()?);
    (sum > 0).then(|| 1.0 - (max - min) as f64 / sum as f64)
}

/// `E_app` only: cheaper than all of [`PageMetrics::of`].
#[must_use]
pub fn exclusivity(usage: &PageUsage, assignment: &NodeAssignment) -> Option<f64> {
    let mut by_node = vec![0u64; assignment.nodes];
    let (mut most, mut all) = (0u64, 0u64);
    for page in usage.pages() {
        usage.by_node(page, |thread| assignment.node(thread.index()), &mut by_node);
        most += by_node.iter().max().copied().unwrap_or(0);
        all += by_node.iter().sum::<u64>();
    }
    (all > 0).then(|| most as f64 / all as f64)
}

/// `E_app` with a separate node for every thread: the pages' inherent exclusivity (data mapping Fig. 1, "64 nodes");
/// never above that of any assignment.
#[must_use]
pub fn inherent_exclusivity(usage: &PageUsage) -> Option<f64> {
    let (mut most, mut all) = (0u64, 0u64);
    for page in usage.pages() {
        let accesses = usage.accesses(page);
        most += accesses.iter().map(ThreadAccess::total).max().unwrap_or(0);
        all += accesses.iter().map(ThreadAccess::total).sum::<u64>();
    }
    (all > 0).then(|| most as f64 / all as f64)
}

impl PageMetrics {
    /// Metrics of `usage` with threads on the nodes of `assignment` and pages on those of `placement` (pages without a
    /// node there are placed by first touch).
    ///
    /// # Panics
    /// If `placement` is not of `usage`, or an access names a thread `assignment` does not have.
    #[must_use]
    pub fn of(usage: &PageUsage, assignment: &NodeAssignment, placement: &Placement) -> Self {
        assert_eq!(
            placement.node.len(),
            usage.pages().len(),
            "another profile's placement"
        );
        let nodes = assignment.nodes;
        let mut found = Self {
            page_size: usage.page_size(),
            pages: 0,
            accesses: 0,
            exclusivity: None,
            mean_page_exclusivity: None,
            exclusivity_pages: [0; EXCLUSIVITY_BINS],
            exclusivity_accesses: [0; EXCLUSIVITY_BINS],
            node_pages: vec![0; nodes],
            node_accesses: vec![0; nodes],
            page_balance: None,
            access_balance: None,
            page_accuracy: None,
            access_accuracy: None,
            local_share: None,
            unplaced: 0,
        };
        let mut by_node = vec![0u64; nodes];
        let mut most = 0u64;
        let mut exclusivity_sum = 0.0;
        let (mut right_pages, mut right_accesses, mut local) = (0u64, 0u64, 0u64);
        for (page, planned) in usage.pages().iter().zip(&placement.node) {
            usage.by_node(page, |thread| assignment.node(thread.index()), &mut by_node);
            let sum: u64 = by_node.iter().sum();
            let Some(exclusivity) = page_exclusivity(&by_node) else {
                continue;
            };
            let max = by_node.iter().copied().max().unwrap_or(0);
            found.pages += 1;
            found.accesses += sum;
            most += max;
            exclusivity_sum += exclusivity;
            // In integers, so that 1/4 falls in the bin that ends at 25 %.
            let bin =
                (max as u128 * EXCLUSIVITY_BINS as u128).div_ceil(u128::from(sum)) as usize - 1;
            found.exclusivity_pages[bin] += 1;
            found.exclusivity_accesses[bin] += sum;
            let touched = || assignment.home(page);
            let Some(node) = planned.or_else(touched).map(LogicalNode::index) else {
                found.unplaced += 1;
                continue;
            };
            found.node_pages[node] += 1;
            found.node_accesses[node] += sum;
            local += by_node[node];
            if by_node[node] == max {
                right_pages += 1;
                right_accesses += sum;
            }
        }
        let share = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        let placed_accesses = found.node_accesses.iter().sum();
        found.exclusivity = share(most, found.accesses);
        found.mean_page_exclusivity =
            (found.pages > 0).then(|| exclusivity_sum / found.pages as f64);
        found.page_balance = balance(&assignment.of_homes(&found.node_pages));
        found.access_balance = balance(&assignment.of_homes(&found.node_accesses));
        found.page_accuracy = share(right_pages, found.pages - found.unplaced);
        found.access_accuracy = share(right_accesses, placed_accesses);
        found.local_share = share(local, placed_accesses);
        found
    }

    /// Bytes of the pages with accesses: what OPT eq. 7 compares with the size of all caches.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.pages * self.page_size
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use numaloc_model::pages::PageHead;
    use numaloc_model::{PageNumber, ThreadIdx};
    use proptest::prelude::*;

    /// One page per entry: (first toucher, accesses by thread 0, 1, ...).
    pub(crate) fn usage_of(pages: &[(u32, Vec<u64>)]) -> PageUsage {
        let mut usage = PageUsage::new(4096);
        for (at, (first, counts)) in pages.iter().enumerate() {
            let head = PageHead {
                number: PageNumber(at as u64),
                object: None,
                object_page: at as u64,
                first_touch: Some(ThreadIdx(*first)),
                first_touch_time: 0,
                policy: None,
            };
            let accesses = counts.iter().enumerate().filter(|(_, c)| **c > 0);
            let accesses = accesses.map(|(t, &c)| ThreadAccess {
                thread: ThreadIdx(t as u32),
                reads: c - c / 3,
                writes: c / 3,
            });
            usage.push(head, accesses.collect());
        }
        usage
    }

    #[test]
    fn two_nodes_four_threads_by_hand() {
        // Threads 0,1 on node 0 and 2,3 on node 1; thread 0 touched all three pages first.
        // p0: node 0 has 6 + 2 = 8, node 1 has 2:       E = 8/10 = 0.8
        // p1: node 0 has 1, node 1 has 19:              E = 19/20 = 0.95
        // p2: 5 and 5:                                  E = 0.5
        let usage = usage_of(&[
            (0, vec![6, 2, 2, 0]),
            (0, vec![1, 0, 10, 9]),
            (0, vec![5, 0, 0, 5]),
        ]);
        let blocks = NodeAssignment::blocks(4, 2);
        let m = PageMetrics::of(&usage, &blocks, &first_touch(&usage, &blocks));
        // E_app = (8 + 19 + 5) / 40 = 0.8; the plain mean is (0.8 + 0.95 + 0.5) / 3 = 0.75.
        assert_eq!(m.exclusivity, Some(0.8));
        assert!((m.mean_page_exclusivity.unwrap() - 0.75).abs() < 1e-12);
        // All pages on node 0: balances 0. p0 and p2 are right there (p2 is a tie): 2/3, 20/40.
        assert_eq!((m.page_balance, m.access_balance), (Some(0.0), Some(0.0)));
        assert_eq!(m.page_accuracy, Some(2.0 / 3.0));
        assert_eq!(m.access_accuracy, Some(0.5));
        // Local: 8 + 1 + 5 of 40.
        assert_eq!(m.local_share, Some(0.35));
        // p1 moved to node 1: pages 2 and 1, B = 1 - 1/3; accesses 20 and 20, B = 1.
        let placement = Placement {
            node: vec![None, Some(LogicalNode(1)), None],
        };
        let m = PageMetrics::of(&usage, &blocks, &placement);
        assert!((m.page_balance.unwrap() - 2.0 / 3.0).abs() < 1e-12);
        assert_eq!((m.access_balance, m.local_share), (Some(1.0), Some(0.8)));
        // With a node for every thread: (6 + 10 + 5) / 40.
        assert_eq!(inherent_exclusivity(&usage), Some(0.525));
        // Bins of 5 %: 0.5 is the 10th, 0.8 the 16th, 0.95 the 19th.
        let filled: Vec<usize> = (0..20).filter(|&b| m.exclusivity_pages[b] > 0).collect();
        assert_eq!(filled, [9, 15, 18]);
    }

    #[test]
    fn no_pages_no_numbers() {
        let usage = usage_of(&[]);
        let blocks = NodeAssignment::blocks(2, 2);
        let m = PageMetrics::of(&usage, &blocks, &first_touch(&usage, &blocks));
        assert_eq!(
            (m.exclusivity, m.page_balance, m.local_share),
            (None, None, None)
        );
    }

    proptest! {
        #[test]
        fn ranges_and_invariances(
            pages in proptest::collection::vec((0u32..6, proptest::collection::vec(0u64..50, 6)), 1..20),
            nodes in 1usize..5,
        ) {
            let usage = usage_of(&pages);
            let of = NodeAssignment::round_robin(6, nodes);
            let m = PageMetrics::of(&usage, &of, &first_touch(&usage, &of));
            prop_assert_eq!(m.exclusivity, exclusivity(&usage, &of));
            let own = NodeAssignment::blocks(6, 6);
            prop_assert_eq!(inherent_exclusivity(&usage), exclusivity(&usage, &own));
            prop_assert!(inherent_exclusivity(&usage) <= m.exclusivity);
            if let Some(e) = m.exclusivity {
                prop_assert!(e >= 1.0 / nodes as f64 - 1e-12 && e <= 1.0);
                // No placement can have more local accesses than the best node of every page.
                prop_assert!(m.local_share.unwrap() <= e + 1e-12);
            }
            for share in [m.page_balance, m.access_balance, m.page_accuracy, m.access_accuracy].into_iter().flatten() {
                prop_assert!((0.0..=1.0).contains(&share));
            }
            prop_assert_eq!(m.exclusivity_pages.iter().sum::<u64>(), m.pages);
            prop_assert_eq!(m.node_accesses.iter().sum::<u64>(), m.accesses);
            // Nodes have no order: renaming them changes nothing.
            let renamed = NodeAssignment {
                nodes,
                homes: of.homes.clone(),
                of_thread: of.of_thread.iter().map(|n| LogicalNode((nodes - 1 - n.index()) as u32)).collect(),
            };
            let r = PageMetrics::of(&usage, &renamed, &first_touch(&usage, &renamed));
            prop_assert_eq!((r.exclusivity, r.page_balance, r.access_balance, r.local_share),
                (m.exclusivity, m.page_balance, m.access_balance, m.local_share));
        }
    }
}
