//! What a page policy is asked: whose accesses, where the threads run, what the machine holds.

use numaloc_model::profile::{PageSliceRow, SlowLoads};
use numaloc_model::{Mapping, PageUsage};
use numaloc_topology::Topology;

/// What a page policy is asked.
#[derive(Clone, Debug)]
pub struct PlaceInput<'a> {
    /// Pages x threads access counts of the recorded run.
    pub pages: &'a PageUsage,
    /// Page accesses per slice (indexes into `pages`); may be empty. Only `next-touch` looks.
    pub page_slices: &'a [PageSliceRow],
    /// Loads that took long (indexes into `pages`), where the profile knows them. Only `marathe` looks.
    pub slow_loads: Option<&'a SlowLoads>,
    /// Where each thread runs.
    pub mapping: &'a Mapping,
    /// The machine.
    pub topology: &'a Topology,
    /// Bytes per page of the placement: a multiple of the profile's page size. Pages of the profile
    /// that share a larger page get one node.
    pub page_size: u64,
    /// How many pages of `page_size` each node may hold (by logical node); `None`: what its memory
    /// holds, without limit where the machine does not say.
    pub capacity: Option<&'a [u64]>,
    /// For `random` and `marathe`.
    pub seed: u64,
    /// For `mixed`: a page above this exclusivity (0..=1, strictly) goes to its main user.
    pub min_exclusivity: f64,
}

impl<'a> PlaceInput<'a> {
    /// With the profile's own page size, the nodes' memory as capacity, seed 0 and the paper's
    /// minimum exclusivity of 0.90.
    #[must_use]
    pub fn new(pages: &'a PageUsage, mapping: &'a Mapping, topology: &'a Topology) -> Self {
        Self {
            pages,
            page_slices: &[],
            slow_loads: None,
            mapping,
            topology,
            page_size: pages.page_size(),
            capacity: None,
            seed: 0,
            min_exclusivity: 0.90,
        }
    }
}
