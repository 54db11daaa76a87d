//! A policy's view of its input: usage at the chosen page size, with threads resolved to nodes.

use numaloc_model::pages::Page;
use numaloc_model::profile::SlowLoadRow;
use numaloc_model::{LogicalNode, LogicalPu, PageUsage, ThreadIdx};
use numaloc_topology::Topology;
use std::borrow::Cow;

use crate::input::PlaceInput;

/// A page policy's input, checked and merged to the page size.
pub struct View<'a> {
    input: &'a PlaceInput<'a>,
    usage: Cow<'a, PageUsage>,
    beyond: Option<Cow<'a, PageUsage>>,
    node_of_thread: Vec<LogicalNode>,
    candidates: Vec<LogicalNode>,
    factor: u64,
    merged: Vec<u32>,
}

impl<'a> View<'a> {
    pub(crate) fn new(input: &'a PlaceInput<'a>) -> Self {
        let factor = input.page_size / input.pages.page_size();
        let merge = |pages: &'a PageUsage| match factor {
            1 => Cow::Borrowed(pages),
            _ => Cow::Owned(pages.merged(input.page_size)),
        };
        let usage = merge(input.pages);
        let mut merged = Vec::with_capacity(input.pages.pages().len());
        let mut at = 0;
        for page in input.pages.pages() {
            while usage.pages()[at].number.0 < page.number.0 / factor {
                at += 1;
            }
            merged.push(u32::try_from(at).expect("fewer than 2^32 pages"));
        }
        let has_memory = |node: &LogicalNode| input.topology.memory_of(*node) != Some(0);
        let mut candidates = input.topology.nodes_with_pus();
        candidates.retain(has_memory);
        if candidates.is_empty() {
            candidates = (0..input.topology.nodes().len())
                .map(LogicalNode::from_index)
                .filter(has_memory)
                .collect();
        }
        Self {
            input,
            usage,
            beyond: input.beyond.map(merge),
            node_of_thread: input
                .mapping
                .pu
                .iter()
                .map(|&pu| input.topology.node_of(pu))
                .collect(),
            candidates,
            factor,
            merged,
        }
    }

    /// Access counts at the page size of the placement; policies answer by index into these pages.
    #[must_use]
    pub fn usage(&self) -> &PageUsage {
        &self.usage
    }

    /// The machine.
    #[must_use]
    pub fn topology(&self) -> &'a Topology {
        self.input.topology
    }

    /// The seed for random policies.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.input.seed
    }

    /// Pages of the placement's page size that fit on each node.
    #[must_use]
    pub fn capacity(&self) -> Vec<u64> {
        self.input.capacities()
    }

    /// The weight of each node for `weighted-interleave`, if weights are given.
    #[must_use]
    pub fn weights(&self) -> Option<&'a [u32]> {
        self.input.weights
    }

    /// The exclusivity above which `mixed` places a page on its main user's node.
    #[must_use]
    pub fn min_exclusivity(&self) -> f64 {
        self.input.min_exclusivity
    }

    /// The nodes a policy chooses among: those with PUs and memory, ascending. Memory-only nodes (HBM, CXL) only take
    /// pages that do not fit elsewhere, because no thread runs on them, unless no other node has memory.
    #[must_use]
    pub fn candidates(&self) -> &[LogicalNode] {
        &self.candidates
    }

    /// The node a thread runs on.
    #[must_use]
    pub fn node_of(&self, thread: ThreadIdx) -> LogicalNode {
        self.node_of_thread[thread.index()]
    }

    /// Sets `counts[n]` to the accesses to `page` from node `n` (`MemAcc[p][n]`); its length is the number of nodes.
    pub fn by_node(&self, page: &Page, counts: &mut [u64]) {
        self.usage
            .by_node(page, |thread| self.node_of(thread).index(), counts);
    }

    /// The PU a thread runs on.
    #[must_use]
    pub fn pu_of(&self, thread: ThreadIdx) -> LogicalPu {
        self.input.mapping.pu[thread.index()]
    }

    /// Sets `counts[n]` to the accesses of threads on node `n` to page `at` of [`Self::usage`] that leave private
    /// caches; to all accesses if they are not known.
    pub fn lines_by_node(&self, at: usize, counts: &mut [u64]) {
        let usage = self.beyond.as_ref().unwrap_or(&self.usage);
        let node_of = |thread| self.node_of(thread).index();
        usage.by_node(&usage.pages()[at], node_of, counts);
    }

    /// Whether [`Self::lines_by_node`] counts each line of a swept page once, not each of its words.
    #[must_use]
    pub fn counts_lines(&self) -> bool {
        self.beyond.is_some() && !self.input.page_slices.is_empty()
    }

    /// Bytes of a line.
    #[must_use]
    pub fn line_bytes(&self) -> u64 {
        let hardware = self.input.topology.hardware();
        hardware.map_or(64, |hardware| hardware.line_bytes)
    }

    /// Bytes of a page of the profile.
    #[must_use]
    pub fn recorded_page_size(&self) -> u64 {
        self.input.pages.page_size()
    }

    /// Preferred nodes by a rule that only depends on the page and its accesses by node.
    pub fn page_by_page(
        &self,
        choose: impl Fn(&Page, &[u64]) -> Option<LogicalNode>,
    ) -> Vec<Option<LogicalNode>> {
        let mut counts = self.counts();
        let pages = self.usage().pages().iter();
        pages
            .map(|page| {
                self.by_node(page, &mut counts);
                choose(page, &counts)
            })
            .collect()
    }

    /// A zeroed buffer for [`Self::by_node`].
    #[must_use]
    pub fn counts(&self) -> Vec<u64> {
        vec![0; self.input.topology.nodes().len()]
    }

    /// The node with most accesses among `counts` (`maxnode(p)`). The paper does not specify ties: the first toucher's
    /// node if it is among the tied, else the lowest. `None` without accesses.
    #[must_use]
    pub fn max_node(&self, page: &Page, counts: &[u64]) -> Option<LogicalNode> {
        let most = counts.iter().copied().max().filter(|&most| most > 0)?;
        if let Some(first) = page.first_touch {
            let node = self.node_of(first);
            if counts[node.index()] == most {
                return Some(node);
            }
        }
        counts
            .iter()
            .position(|&count| count == most)
            .map(LogicalNode::from_index)
    }

    /// The page's node under `interleave`: page number modulo number of candidates (equation 6).
    #[must_use]
    pub fn interleaved(&self, page: &Page) -> LogicalNode {
        let at = page.number.0 % self.candidates.len() as u64;
        self.candidates[usize::try_from(at).expect("below the number of nodes")]
    }

    /// The page of [`Self::usage`] that holds page `page` of the profile.
    #[must_use]
    pub fn merged(&self, page: usize) -> usize {
        self.merged[page] as usize
    }

    /// Page accesses per slice as recorded: `(slice, page of usage(), thread, accesses)`, in the
    /// profile's order. Empty when the profile has none.
    pub fn page_slices(&self) -> impl Iterator<Item = (u32, usize, ThreadIdx, u64)> + '_ {
        self.input
            .page_slices
            .iter()
            .filter(|row| (row.page as usize) < self.merged.len())
            .map(|row| {
                (
                    row.slice.0,
                    self.merged(row.page as usize),
                    row.thread,
                    row.accesses,
                )
            })
    }

    /// The source of the slow loads, if the profile has them.
    #[must_use]
    pub fn slow_loads_source(&self) -> Option<&'a str> {
        self.input.slow_loads.map(|slow| slow.source.as_str())
    }

    /// Loads that took long: `(page of usage(), thread, loads)`, by page and thread as recorded. Empty if the profile
    /// has none.
    pub fn slow_loads(&self) -> impl Iterator<Item = (usize, ThreadIdx, u64)> + '_ {
        let rows = self.input.slow_loads.map_or(&[][..], |slow| &slow.rows);
        let known = |row: &&SlowLoadRow| {
            (row.page as usize) < self.merged.len()
                && row.thread.index() < self.node_of_thread.len()
        };
        let rows = rows.iter().filter(known);
        rows.map(|row| (self.merged(row.page as usize), row.thread, row.loads))
    }

    /// Number of recorded pages per page of this view.
    #[must_use]
    pub fn factor(&self) -> u64 {
        self.factor
    }
}
