//! What requests occupy: controllers, links and write-back buffers.

use super::Memory;
use crate::routes::{Hop, Message};

impl Memory<'_> {
    /// Copies a page from the memory of one node to that of another, by a core there; returns when it is done.
    pub(crate) fn copy_page(&mut self, now: u64, from: usize, to: usize) -> u64 {
        let lines = 1u64 << self.page_shift;
        let nodes = self.machine.nodes;
        self.lines_by_node_pair[to * nodes + from] += lines;
        self.lines_by_node_pair[to * nodes + to] += lines;
        self.controllers[from].lines_read += lines;
        self.controllers[to].lines_written += lines;
        // Lines are pipelined: the slowest part determines the rate, and the first line's latency is added.
        let reading = self.machine.service[from] * lines;
        let read = self.occupy(now, from, reading) + reading;
        let mut done = read + self.machine.memory_latency[from];
        for at in self.routes.between(from, to) {
            let Hop {
                link,
                latency,
                times,
            } = self.routes.hops[at];
            let bytes = self.message_bytes[Message::Line as usize] * lines;
            let service = times[Message::Line as usize] * lines;
            let start = self.links[link as usize].occupy(now, service, bytes);
            done = done.max(start + service) + latency;
        }
        let writing = self.machine.write_service[to] * lines;
        let written = self.occupy(now, to, writing) + writing;
        done.max(written)
    }

    /// Sends a message from node to node; returns its arrival time.
    #[inline]
    fn send(&mut self, mut now: u64, from: usize, to: usize, message: Message) -> u64 {
        if from == to {
            return now;
        }
        let bytes = self.message_bytes[message as usize];
        for hop in &self.routes.hops[self.routes.between(from, to)] {
            let (link, service) = (
                &mut self.links[hop.link as usize],
                hop.times[message as usize],
            );
            self.idle += service + hop.latency;
            let start = if self.is_functional {
                link.bytes += bytes;
                now
            } else {
                link.occupy(now, service, bytes)
            };
            now = start + service + hop.latency;
        }
        now
    }

    #[inline]
    pub(super) fn send_request(&mut self, now: u64, from: usize, to: usize) -> u64 {
        self.send(now, from, to, Message::Request)
    }

    #[inline]
    pub(super) fn send_line(&mut self, now: u64, from: usize, to: usize) -> u64 {
        self.send(now, from, to, Message::Line)
    }

    /// Reads a line from the memory of `home` for a core of `node`; returns its arrival time.
    #[inline(always)]
    pub(super) fn read_dram(&mut self, now: u64, node: usize, home: usize) -> u64 {
        self.lines_by_node_pair[node * self.machine.nodes + home] += 1;
        let asked = self.send_request(now, node, home);
        let service = self.controllers[home].service;
        let start = self.occupy(asked, home, service);
        let controller = &mut self.controllers[home];
        controller.lines_read += 1;
        let ready = start + controller.latency;
        self.idle += controller.latency;
        self.send_line(ready, home, node)
    }

    /// Writes a line back from `node` to the memory of `home`, because of an access of `core`; the core waits for a
    /// free entry of its write-back buffer, not for the end.
    pub(super) fn write_dram(&mut self, core: u32, now: u64, node: usize, home: usize) {
        self.lines_by_node_pair[node * self.machine.nodes + home] += 1;
        self.controllers[home].lines_written += 1;
        let service = self.controllers[home].write_service;
        if self.is_functional {
            self.send_line(now, node, home);
            self.occupy(now, home, service);
            return;
        }
        let entry_free = self.write_backs[core as usize].admit();
        self.buffered_at = self.buffered_at.max(entry_free);
        let arrives = self.send_line(now.max(entry_free), node, home);
        let start = self.occupy(arrives, home, service);
        self.write_backs[core as usize].sent(start + service);
    }

    /// When the core of the last access continues: at `now`, or when its write-backs had entries in the buffer.
    #[inline(always)]
    pub(crate) fn resume(&mut self, now: u64) -> u64 {
        now.max(std::mem::take(&mut self.buffered_at))
    }

    /// Occupies a controller for `service`; returns when that starts.
    #[inline]
    fn occupy(&mut self, now: u64, home: usize, service: u64) -> u64 {
        let controller = &mut self.controllers[home];
        if self.is_functional {
            controller.unbooked += service;
            return now;
        }
        controller.occupy(now, service)
    }
}
