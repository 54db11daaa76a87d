//! What requests are counted by, to be taken back where requests only change the state of caches.

use super::Memory;
use crate::outcome::GroupFigures;

/// Counts of requests, without those that bookings add.
pub(crate) struct Counts {
    /// Lines read and written, and time that was not booked, by controller.
    nodes: Vec<[u64; 3]>,
    groups: Vec<GroupFigures>,
    /// Bytes of each link.
    links: Vec<u64>,
    /// Lines and requests.
    pairs: [Vec<u64>; 2],
    others: [u64; 4],
}

impl Memory<'_> {
    /// What was counted so far.
    pub(crate) fn counts(&self) -> Counts {
        let controllers = self.controllers.iter();
        let nodes = controllers.map(|of| [of.lines_read, of.lines_written, of.unbooked]);
        Counts {
            nodes: nodes.collect(),
            groups: self.groups.clone(),
            links: self.links.iter().map(|link| link.bytes).collect(),
            pairs: [&self.lines_by_node_pair, &self.requests_by_node_pair].map(Clone::clone),
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
        for (controller, nodes) in self.controllers.iter_mut().zip(counts.nodes) {
            [
                controller.lines_read,
                controller.lines_written,
                controller.unbooked,
            ] = nodes;
        }
        for (link, bytes) in self.links.iter_mut().zip(counts.links) {
            link.bytes = bytes;
        }
        self.groups = counts.groups;
        [self.lines_by_node_pair, self.requests_by_node_pair] = counts.pairs;
        [
            self.private_hits,
            self.invalidations,
            self.transfers_within,
            self.transfers_between,
        ] = counts.others;
    }
}
