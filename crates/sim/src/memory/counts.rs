//! What requests are counted by, to be taken back where requests only change the state of caches.

use super::Memory;
use crate::outcome::{GroupFigures, LinkFigures, NodeFigures};

/// Counts of requests, without those of controllers and links, which [`Memory::finish`] adds.
pub(crate) struct Counts {
    nodes: Vec<NodeFigures>,
    groups: Vec<GroupFigures>,
    links: Vec<LinkFigures>,
    /// Lines and requests.
    pairs: [Vec<u64>; 2],
    unbooked: Vec<u64>,
    others: [u64; 4],
}

impl Memory<'_> {
    /// What was counted so far.
    pub(crate) fn counts(&self) -> Counts {
        Counts {
            nodes: self.nodes.clone(),
            groups: self.groups.clone(),
            links: self.links.clone(),
            pairs: [&self.lines_by_node_pair, &self.requests_by_node_pair].map(Clone::clone),
            unbooked: self.unbooked.clone(),
            others: [
                self.private_hits,
                self.invalidations,
                self.transfers_within,
                self.transfers_between,
            ],
        }
    }

    /// Takes back what was counted since.
    pub(crate) fn set_counts(&mut self, counts: Counts) {
        (self.nodes, self.groups, self.links) = (counts.nodes, counts.groups, counts.links);
        [self.lines_by_node_pair, self.requests_by_node_pair] = counts.pairs;
        self.unbooked = counts.unbooked;
        [
            self.private_hits,
            self.invalidations,
            self.transfers_within,
            self.transfers_between,
        ] = counts.others;
    }
}
