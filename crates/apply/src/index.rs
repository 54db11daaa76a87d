//! Indexes a plan for lookups during a run: threads by path, objects by identity, and for each object its runs
//! of pages with their nodes.

use numaloc_model::Plan;
use numaloc_model::plan::ObjectKey;
use std::collections::{HashMap, HashSet};

/// Pages `first..end` of an object go to `node` (kernel number).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First page.
    pub first: u64,
    /// First page after it.
    pub end: u64,
    /// Kernel number of the node.
    pub node: u32,
}

impl Run {
    /// Number of pages.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.end - self.first
    }
}

/// A plan, indexed by thread path and object identity; see the module.
#[derive(Clone, Debug, Default)]
pub struct PlanIndex {
    threads: HashMap<String, (usize, u32)>,
    left_out: HashSet<String>,
    objects: HashMap<ObjectKey, usize>,
    keys: Vec<ObjectKey>,
    runs: Vec<Vec<Run>>,
    page_size: u64,
    coarsened: Option<u64>,
    max_runs: usize,
}

impl PlanIndex {
    /// Indexes a plan. Neighbouring runs on one node are merged. If more than `max_runs` remain, they are
    /// coarsened (see [`Self::coarsened`]), because every run can become a kernel mapping of its own.
    #[must_use]
    pub fn new(plan: &Plan, max_runs: usize) -> Self {
        let mut index = Self::fine(plan, max_runs);
        index.coarsen(|_| &[]);
        index
    }

    /// The same before [`Self::coarsen`].
    #[must_use]
    pub fn fine(plan: &Plan, max_runs: usize) -> Self {
        let mut runs: Vec<Vec<Run>> = vec![Vec::new(); plan.objects.len()];
        for pages in &plan.pages {
            if let Some(list) = runs.get_mut(pages.object as usize) {
                list.push(Run {
                    first: pages.first_page,
                    end: pages.first_page.saturating_add(pages.pages),
                    node: pages.os_node.0,
                });
            }
        }
        for list in &mut runs {
            list.sort_by_key(|run| run.first);
            merge(list);
        }
        let mut objects = HashMap::new();
        for (at, key) in plan.objects.iter().enumerate() {
            if !runs[at].is_empty() {
                objects.entry(key.clone()).or_insert(at);
            }
        }
        Self {
            threads: plan
                .threads
                .iter()
                .enumerate()
                .map(|(at, thread)| (thread.path.clone(), (at, thread.os_pu.0)))
                .collect(),
            left_out: plan.provenance.left_out.iter().cloned().collect(),
            objects,
            keys: plan.objects.clone(),
            runs,
            page_size: plan.page_size.max(1),
            coarsened: None,
            max_runs,
        }
    }

    /// Coarsens the runs if too many are placed one by one: those outside the ranges of pages that `others` gives for
    /// each object.
    pub fn coarsen<'a>(&mut self, others: impl Fn(usize) -> &'a [(u64, u64)]) {
        let mut block = 1_u64;
        let count = |(object, runs): (usize, &Vec<Run>)| {
            let is_placed = |run: &&Run| {
                let within = |&(first, end): &(u64, u64)| first <= run.first && run.end <= end;
                !others(object).iter().any(within)
            };
            runs.iter().filter(is_placed).count()
        };
        while self.runs.iter().enumerate().map(count).sum::<usize>() > self.max_runs
            && block < 1 << 40
        {
            block *= 2;
            for list in &mut self.runs {
                *list = coarsen(list, block);
            }
        }
        if block > 1 {
            self.coarsened = Some(block);
        }
    }

    /// The threads of a plan without its pages.
    #[must_use]
    pub fn threads_only(plan: &Plan) -> Self {
        let mut index = Self::new(plan, usize::MAX);
        index.objects.clear();
        index.runs.iter_mut().for_each(Vec::clear);
        index
    }

    /// Index in the plan and PU (kernel number) of a thread.
    #[must_use]
    pub fn thread(&self, path: &str) -> Option<(usize, u32)> {
        self.threads.get(path).copied()
    }

    /// Gives a thread of the plan another PU (kernel number), from now on.
    pub fn move_thread(&mut self, path: &str, pu: u32) {
        if let Some((_, planned)) = self.threads.get_mut(path) {
            *planned = pu;
        }
    }

    /// Gives the pages of `other`, whose objects have the same numbers, the nodes that they have there.
    pub fn move_pages(&mut self, other: &Self) {
        for (runs, moved) in self.runs.iter_mut().zip(&other.runs) {
            for &new in moved {
                let outside = |run: &Run| {
                    let before = Run {
                        end: run.end.min(new.first),
                        ..*run
                    };
                    let behind = Run {
                        first: run.first.max(new.end),
                        ..*run
                    };
                    [before, behind]
                };
                let mut rest: Vec<Run> = runs.iter().flat_map(outside).collect();
                rest.retain(|run| run.first < run.end);
                rest.push(new);
                rest.sort_by_key(|run| run.first);
                *runs = rest;
            }
        }
    }

    /// Whether the plan leaves a thread to the kernel on purpose.
    #[must_use]
    pub fn leaves_out(&self, path: &str) -> bool {
        self.left_out.contains(path)
    }

    /// Index of an object that has planned pages.
    #[must_use]
    pub fn object(&self, key: &ObjectKey) -> Option<usize> {
        self.objects.get(key).copied()
    }

    /// The identity of an object.
    #[must_use]
    pub fn key(&self, object: usize) -> &ObjectKey {
        &self.keys[object]
    }

    /// Every object with planned pages: index and identity.
    pub fn objects(&self) -> impl Iterator<Item = (usize, &ObjectKey)> {
        self.keys
            .iter()
            .enumerate()
            .filter(|(at, _)| !self.runs[*at].is_empty())
    }

    /// The runs of an object: ascending, disjoint; adjacent runs are on different nodes.
    #[must_use]
    pub fn runs(&self, object: usize) -> &[Run] {
        &self.runs[object]
    }

    /// Planned pages of an object.
    #[must_use]
    pub fn pages(&self, object: usize) -> u64 {
        self.runs[object].iter().map(Run::pages).sum()
    }

    /// Whether any page is planned.
    #[must_use]
    pub fn has_pages(&self) -> bool {
        !self.objects.is_empty()
    }

    /// Bytes per planned page.
    #[must_use]
    pub fn page_size(&self) -> u64 {
        self.page_size
    }

    /// Pages per block if runs had to be coarsened.
    #[must_use]
    pub fn coarsened(&self) -> Option<u64> {
        self.coarsened
    }

    /// The address ranges `(start, end, node)` of an object whose first byte is at `base`, clipped to
    /// `from..to`. Page 0 is the page that holds the first byte.
    #[must_use]
    pub fn ranges(&self, object: usize, base: u64, from: u64, to: u64) -> Vec<(u64, u64, u32)> {
        let range = |run: &Run| {
            let (start, end) = self.range((run.first, run.end), base, (from, to))?;
            Some((start, end, run.node))
        };
        self.runs[object].iter().filter_map(range).collect()
    }

    /// The addresses of these pages of an object whose first byte is at `base`, clipped to `within`; `None` if nothing
    /// remains.
    #[must_use]
    pub fn range(&self, pages: (u64, u64), base: u64, within: (u64, u64)) -> Option<(u64, u64)> {
        let page0 = base - base % 4096;
        let at = |page: u64| page0.saturating_add(page.saturating_mul(self.page_size));
        let (start, end) = (at(pages.0).max(within.0), at(pages.1).min(within.1));
        (start < end).then_some((start, end))
    }
}

/// Merges adjacent runs on one node; where two runs overlap, the earlier one keeps the pages.
fn merge(runs: &mut Vec<Run>) {
    let mut merged: Vec<Run> = Vec::with_capacity(runs.len());
    for &run in runs.iter() {
        match merged.last_mut() {
            Some(last) if run.first <= last.end && run.node == last.node => {
                last.end = last.end.max(run.end);
            }
            Some(last) if run.first < last.end => {
                let first = last.end;
                let rest = (run.end > first).then_some(Run { first, ..run });
                merged.extend(rest);
            }
            _ if run.first < run.end => merged.push(run),
            _ => {}
        }
    }
    *runs = merged;
}

/// Gives each aligned block of `block` pages one node: the one with the largest balance, which is the number of its
/// planned pages up to this block less the pages it was given before. This keeps the nodes' shares (an interleaved
/// object stays interleaved, in larger steps) and a clear majority wins. Ties go to the lower node.
fn coarsen(runs: &[Run], block: u64) -> Vec<Run> {
    let Some(top) = runs.iter().map(|run| run.node).max() else {
        return Vec::new();
    };
    let mut balance = vec![0_i128; top as usize + 1];
    let mut coarse: Vec<Run> = Vec::new();
    let mut at = 0;
    let mut cursor = runs[0].first;
    while at < runs.len() {
        cursor = cursor.max(runs[at].first);
        let border = (cursor / block + 1).saturating_mul(block);
        if runs[at].end >= border + block && balance.iter().all(|&balance| balance == 0) {
            // A run that covers whole blocks decides them alone.
            let end = runs[at].end / block * block;
            push(
                &mut coarse,
                Run {
                    first: cursor,
                    end,
                    node: runs[at].node,
                },
            );
            cursor = end;
        } else {
            let (mut last, mut pages, mut next) = (cursor, 0, cursor);
            let mut run = at;
            while run < runs.len() && runs[run].first < border {
                let start = runs[run].first.max(next);
                last = runs[run].end.min(border);
                balance[runs[run].node as usize] += i128::from(last - start);
                pages += last - start;
                next = last;
                run += 1;
            }
            let node = (0..balance.len())
                .rev()
                .max_by_key(|&n| balance[n])
                .unwrap_or(0);
            balance[node] -= i128::from(pages);
            push(
                &mut coarse,
                Run {
                    first: cursor,
                    end: last,
                    node: node as u32,
                },
            );
            cursor = last;
        }
        while at < runs.len() && runs[at].end <= cursor {
            at += 1;
        }
    }
    coarse
}

fn push(runs: &mut Vec<Run>, run: Run) {
    match runs.last_mut() {
        Some(last) if last.end == run.first && last.node == run.node => last.end = run.end,
        _ => runs.push(run),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn runs(list: &[(u64, u64, u32)]) -> Vec<Run> {
        list.iter()
            .map(|&(first, end, node)| Run { first, end, node })
            .collect()
    }

    #[test]
    fn neighbours_of_one_node_become_one_range() {
        let mut list = runs(&[(0, 2, 1), (2, 5, 1), (5, 6, 0), (8, 9, 0), (9, 9, 3)]);
        merge(&mut list);
        assert_eq!(list, runs(&[(0, 5, 1), (5, 6, 0), (8, 9, 0)]));
    }

    #[test]
    fn coarser_interleaving_stays_interleaved() {
        // Pages 0 1 2 3 ... on nodes 0 1 0 1, blocks of two. Block 0: both have a balance of 1, so node 0 wins and
        // has -1 afterwards, node 1 has 1. Block 1: 0 against 2, so node 1 wins. And so on.
        let fine: Vec<Run> = (0..8)
            .map(|p| Run {
                first: p,
                end: p + 1,
                node: (p % 2) as u32,
            })
            .collect();
        let coarse = coarsen(&fine, 2);
        assert_eq!(coarse, runs(&[(0, 2, 0), (2, 4, 1), (4, 6, 0), (6, 8, 1)]));
    }

    #[test]
    fn page_zero_holds_the_first_byte() {
        let index = PlanIndex {
            runs: vec![runs(&[(0, 1, 0), (1, 3, 1)])],
            page_size: 4096,
            ..PlanIndex::default()
        };
        // First byte at 0x1234: page 0 is 0x1000..0x2000.
        let all = index.ranges(0, 0x1234, 0, u64::MAX);
        assert_eq!(all, [(0x1000, 0x2000, 0), (0x2000, 0x4000, 1)]);
        assert_eq!(
            index.ranges(0, 0x1234, 0x1000, 0x3000)[1],
            (0x2000, 0x3000, 1)
        );
    }

    proptest! {
        #[test]
        fn coarse_runs_cover_the_same_span_in_order(
            lengths in prop::collection::vec((0_u64..3, 1_u64..40, 0_u32..4), 1..80),
            block in prop::sample::select(vec![2_u64, 4, 16]),
        ) {
            let mut at = 0;
            let mut fine = Vec::new();
            for (gap, length, node) in lengths {
                let first = at + gap;
                at = first + length;
                fine.push(Run { first, end: at, node });
            }
            merge(&mut fine);
            let coarse = coarsen(&fine, block);
            prop_assert!(coarse.windows(2).all(|w| w[0].end <= w[1].first));
            // Every planned page still has a node.
            for run in &fine {
                for page in run.first..run.end {
                    prop_assert!(coarse.iter().any(|c| c.first <= page && page < c.end));
                }
            }
            prop_assert!(coarse.iter().all(|run| run.first < run.end));
        }
    }
}
