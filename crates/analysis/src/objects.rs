//! Which memory it is: page use added up by object.
//!
//! An object is what the recorder could name: a static section or symbol, an allocation's call site,
//! a mapping, a thread's stack. The table answers who made an object's pages resident and who uses
//! them, which is what a person can change in the source.
//!
//! Cost: O(page cells + objects T); pages without an object are added up in one row without a name.

use numaloc_model::profile::Profile;
use numaloc_model::{ObjectIdx, ThreadIdx};

use crate::assignment::NodeAssignment;

/// Use of one object.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectUse {
    /// Which; `None` for the pages without an object.
    pub object: Option<ObjectIdx>,
    /// Its pages with accesses.
    pub pages: u64,
    /// Loads.
    pub reads: u64,
    /// Stores.
    pub writes: u64,
    /// Threads that accessed it.
    pub threads: u64,
    /// The thread that touched most of its pages first, and how many those are.
    pub first_toucher: Option<(ThreadIdx, u64)>,
    /// `E_app` of its pages alone.
    pub exclusivity: f64,
    /// Share of its accesses that are local under first touch; 0 where first touch was not observed.
    pub local_share: f64,
}

impl ObjectUse {
    /// Loads and stores.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        self.reads + self.writes
    }

    /// Share of the pages that the main first toucher brought in.
    #[must_use]
    pub fn first_touch_share(&self) -> f64 {
        self.first_toucher
            .map_or(0.0, |(_, pages)| pages as f64 / self.pages.max(1) as f64)
    }
}

/// Use of every object with accesses, the most used first (ties: lower index first).
#[must_use]
pub fn object_use(profile: &Profile, assignment: &NodeAssignment) -> Vec<ObjectUse> {
    let unnamed = profile.objects.len();
    let key = |object: Option<ObjectIdx>| object.map_or(unnamed, ObjectIdx::index).min(unnamed);
    let mut order: Vec<usize> = (0..profile.pages.pages().len()).collect();
    order.sort_by_key(|&at| key(profile.pages.pages()[at].object));
    let threads = profile.threads.len();
    let mut touched = vec![0u64; threads];
    let mut used = vec![false; threads];
    let mut by_node = vec![0u64; assignment.nodes];
    let mut found = Vec::new();
    let mut at = 0;
    while at < order.len() {
        let object = key(profile.pages.pages()[order[at]].object);
        touched.fill(0);
        used.fill(false);
        let (mut pages, mut reads, mut writes, mut most, mut local) =
            (0u64, 0u64, 0u64, 0u64, 0u64);
        while at < order.len() {
            let page = &profile.pages.pages()[order[at]];
            if key(page.object) != object {
                break;
            }
            at += 1;
            let accesses = profile.pages.accesses(page);
            if accesses.is_empty() {
                continue;
            }
            pages += 1;
            for access in accesses {
                reads += access.reads;
                writes += access.writes;
                used[access.thread.index()] = true;
            }
            profile
                .pages
                .by_node(page, |t| assignment.node(t.index()), &mut by_node);
            most += by_node.iter().copied().max().unwrap_or(0);
            if let Some(first) = page.first_touch {
                touched[first.index()] += 1;
                local += by_node[assignment.node(first.index())];
            }
        }
        let accesses = (reads + writes) as f64;
        if accesses == 0.0 {
            continue;
        }
        let top = touched.iter().copied().max().unwrap_or(0);
        found.push(ObjectUse {
            object: (object < unnamed).then(|| ObjectIdx::from_index(object)),
            pages,
            reads,
            writes,
            threads: used.iter().filter(|&&u| u).count() as u64,
            first_toucher: (top > 0).then(|| {
                let thread = touched
                    .iter()
                    .position(|&t| t == top)
                    .expect("top is in it");
                (ThreadIdx::from_index(thread), top)
            }),
            exclusivity: most as f64 / accesses,
            local_share: local as f64 / accesses,
        });
    }
    found.sort_by_key(|use_| std::cmp::Reverse(use_.accesses()));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::tests::profile_of;
    use numaloc_model::pages::PageHead;
    use numaloc_model::profile::{Object, ObjectKind};
    use numaloc_model::{PageNumber, PageUsage, ThreadAccess};

    #[test]
    fn a_grid_touched_by_the_main_thread() {
        let mut profile = profile_of(4, 1, &[]);
        profile.objects = vec![Object {
            kind: ObjectKind::Heap,
            name: "grid (stencil.c:41)".into(),
            size: 3 * 4096,
            order: 0,
            thread: Some(ThreadIdx(0)),
            base: 0,
        }];
        let mut usage = PageUsage::new(4096);
        // Three pages of the grid: T0 touched all, T1, T2, T3 use one each. One page without object.
        for (page, user) in [(0u64, 1u32), (1, 2), (2, 3), (9, 0)] {
            usage.push(
                PageHead {
                    number: PageNumber(page),
                    object: (page < 9).then_some(ObjectIdx(0)),
                    object_page: page,
                    first_touch: Some(ThreadIdx(0)),
                    first_touch_time: 0,
                },
                [(0, 1), (user, 9)]
                    .into_iter()
                    .map(|(t, n)| ThreadAccess {
                        thread: ThreadIdx(t),
                        reads: n,
                        writes: 0,
                    })
                    .collect(),
            );
        }
        profile.pages = usage;
        let found = object_use(&profile, &NodeAssignment::blocks(4, 2));
        assert_eq!(found.len(), 2);
        let grid = &found[0];
        assert_eq!(
            (grid.object, grid.pages, grid.threads),
            (Some(ObjectIdx(0)), 3, 4)
        );
        assert_eq!(grid.first_toucher, Some((ThreadIdx(0), 3)));
        // Threads 0,1 on node 0: page 0 has all 10 there; pages 1 and 2 have 1 there, 9 on node 1.
        assert!((grid.exclusivity - 28.0 / 30.0).abs() < 1e-12);
        assert!((grid.local_share - 12.0 / 30.0).abs() < 1e-12);
        assert_eq!((found[1].object, found[1].accesses()), (None, 10));
    }
}
