//! Controllers and links: a server each, with what is counted for the outcome.

use crate::machine::Machine;
use crate::outcome::{LinkFigures, NodeFigures};
use crate::server::Server;
use crate::timeline::Sums;

/// A node's memory controller.
#[derive(Clone, Debug)]
pub(super) struct Controller {
    pub(super) server: Server,
    /// Picoseconds of a line at the controller, read or written, and from the controller until it is ready.
    pub(super) service: u64,
    pub(super) write_service: u64,
    pub(super) latency: u64,
    pub(super) lines_read: u64,
    pub(super) lines_written: u64,
    /// Time of requests that were not booked, because they only changed the state of caches.
    pub(super) unbooked: u64,
    /// Busy time and waits.
    over_time: Sums<2>,
}

impl Controller {
    pub(super) fn all(machine: &Machine) -> Vec<Self> {
        (0..machine.nodes)
            .map(|node| Self {
                server: Server::of(machine.service[node]),
                service: machine.service[node],
                write_service: machine.write_service[node],
                latency: machine.memory_latency[node],
                lines_read: 0,
                lines_written: 0,
                unbooked: 0,
                over_time: Sums::default(),
            })
            .collect()
    }

    /// Occupies the controller with requests that arrive at `now` and take `service`; returns when service starts.
    #[inline]
    pub(super) fn occupy(&mut self, now: u64, service: u64) -> u64 {
        let start = self.server.book(now, service);
        self.over_time.add(start, [service, start - now]);
        start
    }

    /// The figures of a node with that number of pages.
    pub(super) fn figures(&self, pages: u64) -> NodeFigures {
        let busy = self.server.busy + self.unbooked;
        // Requests that did not wait in a sampled simulation would have waited as the others.
        let all = busy as f64 / self.server.busy.max(1) as f64;
        let [busy_over_time, wait_over_time] = self.over_time.timelines();
        NodeFigures {
            pages,
            lines_read: self.lines_read,
            lines_written: self.lines_written,
            busy,
            waited: (self.server.waited as f64 * all) as u64,
            longest_wait: self.server.longest,
            busy_over_time,
            wait_over_time,
        }
    }
}

/// A directed link.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) server: Server,
    pub(super) bytes: u64,
    over_time: Sums<1>,
}

impl Link {
    /// A link on which messages usually take `usual`.
    pub(super) fn new(usual: u64) -> Self {
        Self {
            server: Server::of(usual),
            bytes: 0,
            over_time: Sums::default(),
        }
    }

    /// Occupies the link with `bytes`, which take `service`, from `now` on; returns when they start.
    #[inline]
    pub(super) fn occupy(&mut self, now: u64, service: u64, bytes: u64) -> u64 {
        let start = self.server.book(now, service);
        self.bytes += bytes;
        self.over_time.add(start, [bytes]);
        start
    }

    /// Completes the figures of a link.
    pub(super) fn complete(&self, figures: &mut LinkFigures) {
        let [over_time] = self.over_time.timelines();
        figures.bytes = self.bytes;
        figures.busy = self.server.busy;
        figures.waited = self.server.waited;
        figures.over_time = over_time;
    }
}
