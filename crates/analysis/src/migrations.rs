//! Page migrations needed to keep pages with their users.
//!
//! Implements section II-C of "Locality vs. Balance" (2015) and OPT 5.1.5: in every slice in which a page is used but
//! is not on the node that uses it most, a migration is counted and the page moves there. Pages start where first touch
//! put them; a page whose first touch was not observed starts on its first slice's node without a migration. A tie with
//! the current node causes no move; other ties go to the lowest node. `E_app` of every slice is computed as well (OPT
//! Fig. 10).
//!
//! Cost: O(rows + pages N); memory O(pages).

use numaloc_model::LogicalNode;
use numaloc_model::profile::Profile;

use crate::assignment::NodeAssignment;

/// Migrations of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Migrations {
    /// By slice.
    pub by_slice: Vec<u64>,
    /// `pages[m]`: pages that moved `m` times; the last entry counts those that moved more often.
    pub pages: Vec<u64>,
    /// All migrations.
    pub total: u64,
    /// `E_app` of the accesses of every slice; `None` if no page was used.
    pub exclusivity: Vec<Option<f64>>,
}

/// Entries of [`Migrations::pages`]: 0 to 9 times, and 10 or more.
pub const COUNTS: usize = 11;

/// Counts migrations; `None` when the profile has no page use by slice.
#[must_use]
pub fn migrations(profile: &Profile, assignment: &NodeAssignment) -> Option<Migrations> {
    if profile.page_slices().is_empty() {
        return None;
    }
    let mut place: Vec<Option<LogicalNode>> = profile
        .pages()
        .pages()
        .iter()
        .map(|page| assignment.home(page))
        .collect();
    let mut moved = vec![0u32; place.len()];
    let mut found = Migrations {
        by_slice: vec![0; profile.slices().len()],
        pages: vec![0; COUNTS],
        total: 0,
        exclusivity: Vec::new(),
    };
    let mut in_slice = vec![(0u64, 0u64); profile.slices().len()];
    let mut order: Vec<usize> = (0..profile.page_slices().len()).collect();
    let rows = profile.page_slices();
    order.sort_by_key(|&at| (rows[at].slice, rows[at].page));
    let mut by_node = vec![0u64; assignment.nodes];
    let mut at = 0;
    while at < order.len() {
        let (slice, page) = (rows[order[at]].slice, rows[order[at]].page);
        by_node.fill(0);
        while at < order.len() && (rows[order[at]].slice, rows[order[at]].page) == (slice, page) {
            let row = &rows[order[at]];
            by_node[assignment.node(row.thread.index())] += row.accesses;
            at += 1;
        }
        let most = by_node.iter().copied().max().unwrap_or(0);
        if let Some((local, all)) = in_slice.get_mut(slice.index()) {
            *local += most;
            *all += by_node.iter().sum::<u64>();
        }
        let best = by_node.iter().position(|&n| n == most).unwrap_or(0);
        match place[page as usize] {
            Some(node) if by_node[node.index()] == most => {}
            Some(_) => {
                moved[page as usize] += 1;
                found.total += 1;
                if let Some(count) = found.by_slice.get_mut(slice.index()) {
                    *count += 1;
                }
                place[page as usize] = Some(LogicalNode::from_index(best));
            }
            None => place[page as usize] = Some(LogicalNode::from_index(best)),
        }
    }
    found.exclusivity = in_slice
        .into_iter()
        .map(|(local, all)| (all > 0).then(|| local as f64 / all as f64))
        .collect();
    for count in moved {
        found.pages[(count as usize).min(COUNTS - 1)] += 1;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::tests::usage_of;
    use crate::timeline::tests::profile_of;
    use numaloc_model::profile::PageSlice;
    use numaloc_model::{PageNumber, SliceIdx, ThreadIdx};
    use proptest::prelude::*;

    #[test]
    fn a_migrating_page_by_hand() {
        // Thread 0 on node 0, thread 1 on node 1. Page 0 starts on node 0.
        // Slice 0: only thread 0: stays. Slice 1: thread 1 has 3 of 4: moves. Slice 2: 2 to 2: stays.
        // Slice 3: thread 0 only: moves back. Two migrations. Page 1 is used by its toucher only.
        let mut tables = profile_of(2, 4, &[]).into_builder();
        tables.usage(&usage_of(&[(0, vec![8, 5]), (1, vec![0, 9])]));
        let row = |slice, page, thread, accesses| PageSlice {
            slice: SliceIdx(slice),
            page: PageNumber(page),
            thread: ThreadIdx(thread),
            accesses,
        };
        tables.page_slices = vec![
            row(0, 0, 0, 4),
            row(1, 0, 0, 1),
            row(1, 0, 1, 3),
            row(1, 1, 1, 9),
            row(2, 0, 0, 2),
            row(2, 0, 1, 2),
            row(3, 0, 0, 1),
        ];
        let profile = tables.build().unwrap();
        let found = migrations(&profile, &NodeAssignment::blocks(2, 2)).unwrap();
        assert_eq!((found.total, &found.by_slice[..]), (2, &[0, 1, 0, 1][..]));
        assert_eq!(found.pages[..4], [1, 0, 1, 0]);
        // E_app by slice: 4/4; (3 + 9)/13; 2/4; 1/1.
        let expected = [1.0, 12.0 / 13.0, 0.5, 1.0];
        for (found, expected) in found.exclusivity.iter().zip(expected) {
            assert!((found.unwrap() - expected).abs() < 1e-12);
        }
        let profile = profile
            .changed(|tables| tables.page_slices.clear())
            .unwrap();
        assert_eq!(migrations(&profile, &NodeAssignment::blocks(2, 2)), None);
    }

    proptest! {
        #[test]
        fn counts_add_up_and_nodes_have_no_order(
            rows in proptest::collection::vec((0u32..8, 0u32..4, 0u32..4, 1u64..20), 1..60),
        ) {
            let mut tables = profile_of(4, 8, &[]).into_builder();
            tables.usage(&usage_of(&[(0, vec![1; 4]), (1, vec![1; 4]), (2, vec![1; 4]), (3, vec![1; 4])]));
            tables.page_slices = rows.iter().map(|&(slice, page, thread, accesses)| PageSlice {
                slice: SliceIdx(slice),
                page: PageNumber(u64::from(page)),
                thread: ThreadIdx(thread),
                accesses,
            }).collect();
            let profile = tables.build().unwrap();
            let blocks = NodeAssignment::blocks(4, 2);
            let found = migrations(&profile, &blocks).unwrap();
            prop_assert_eq!(found.by_slice.iter().sum::<u64>(), found.total);
            prop_assert_eq!(found.pages.iter().sum::<u64>(), 4);
            // A page moves at most once in a slice in which it is used.
            let mut used: Vec<(u32, u32)> = rows.iter().map(|r| (r.0, r.1)).collect();
            used.sort_unstable();
            used.dedup();
            prop_assert!(found.total <= used.len() as u64);
            prop_assert!(found.exclusivity.iter().flatten().all(|e| (0.5..=1.0).contains(e)));
            // On one node nothing moves and everything is exclusive.
            let one = migrations(&profile, &NodeAssignment::blocks(4, 1)).unwrap();
            prop_assert_eq!(one.total, 0);
            prop_assert!(one.exclusivity.iter().flatten().all(|&e| e == 1.0));
            // Twice the accesses, the same moves.
            let twice = profile.changed(|tables| {
                for row in &mut tables.page_slices { row.accesses *= 2; }
            });
            prop_assert_eq!(migrations(&twice.unwrap(), &blocks).unwrap(), found);
        }
    }
}
