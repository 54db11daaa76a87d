//! Input of a page policy: page usage, thread mapping and machine.

use numaloc_model::profile::{PageSliceRow, SlowLoads};
use numaloc_model::{LogicalNode, Mapping, PageUsage};
use numaloc_topology::Topology;

/// Input of a page policy.
#[derive(Clone, Debug)]
pub struct PlaceInput<'a> {
    /// Pages x threads access counts of the recorded run.
    pub pages: &'a PageUsage,
    /// The accesses of `pages` that leave private caches, page by page; `None`: all of them. Used by `tier` and `hbm`.
    pub beyond: Option<&'a PageUsage>,
    /// Page accesses per slice (indexes into `pages`); may be empty. Used by `next-touch`, `tier` and `hbm`.
    pub page_slices: &'a [PageSliceRow],
    /// Loads that took long (indexes into `pages`), if the profile has them. Used by `marathe` and
    /// `tier`.
    pub slow_loads: Option<&'a SlowLoads>,
    /// Where each thread runs.
    pub mapping: &'a Mapping,
    /// The machine.
    pub topology: &'a Topology,
    /// Bytes per page of the placement: a multiple of the profile's page size. Pages of the profile
    /// that share a larger page get one node.
    pub page_size: u64,
    /// Capacity in pages of `page_size` by logical node; `None`: as much as the node's memory holds, unlimited if the
    /// machine does not specify it.
    pub capacity: Option<&'a [u64]>,
    /// The same in bytes, of any page size; `capacity` comes first.
    pub capacity_bytes: Option<&'a [u64]>,
    /// For `weighted-interleave`: weight of each logical node; `None`: by the machine's bandwidths.
    pub weights: Option<&'a [u32]>,
    /// Seed of `random` and `marathe`.
    pub seed: u64,
    /// For `mixed`: a page above this exclusivity (0..=1, strictly) goes to its main user.
    pub min_exclusivity: f64,
}

impl<'a> PlaceInput<'a> {
    /// Input with the profile's own page size, the nodes' memory as capacity, seed 0 and the paper's minimum
    /// exclusivity of 0.90.
    #[must_use]
    pub fn new(pages: &'a PageUsage, mapping: &'a Mapping, topology: &'a Topology) -> Self {
        Self {
            pages,
            beyond: None,
            page_slices: &[],
            slow_loads: None,
            mapping,
            topology,
            page_size: pages.page_size(),
            capacity: None,
            capacity_bytes: None,
            weights: None,
            seed: 0,
            min_exclusivity: 0.90,
        }
    }

    /// Pages of `page_size` that fit on each logical node.
    pub(crate) fn capacities(&self) -> Vec<u64> {
        if let Some(given) = self.capacity {
            return given.to_vec();
        }
        if let Some(given) = self.capacity_bytes {
            return given.iter().map(|bytes| bytes / self.page_size).collect();
        }
        let nodes = (0..self.topology.nodes().len()).map(LogicalNode::from_index);
        nodes
            .map(|node| match self.topology.memory_of(node) {
                None => u64::MAX,
                Some(bytes) => bytes / self.page_size,
            })
            .collect()
    }
}
