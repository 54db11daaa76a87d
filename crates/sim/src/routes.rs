//! The links between nodes, laid out for the messages of a simulation.

use crate::machine::{LinkModel, Machine};

/// A message on a link.
#[derive(Clone, Copy)]
pub(crate) enum Message {
    /// Without data.
    Request,
    /// With a line.
    Line,
}

/// A link of a route.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hop {
    pub(crate) link: u32,
    /// Picoseconds from one end to the other.
    pub(crate) latency: u64,
    /// Picoseconds that each [`Message`] occupies the link.
    pub(crate) times: [u64; 2],
}

/// The links of all routes, one route after the other.
pub(crate) struct Routes {
    pub(crate) hops: Vec<Hop>,
    /// By pair of nodes: where its route begins.
    starts: Vec<u32>,
    nodes: usize,
}

impl Routes {
    pub(crate) fn new(machine: &Machine, times: impl Fn(&LinkModel) -> [u64; 2]) -> Self {
        let (mut hops, mut starts) = (Vec::new(), Vec::new());
        for route in &machine.routes {
            starts.push(hops.len() as u32);
            hops.extend(route.iter().map(|&at| {
                let link = &machine.links[usize::from(at)];
                Hop {
                    link: u32::from(at),
                    latency: link.hop,
                    times: times(link),
                }
            }));
        }
        starts.push(hops.len() as u32);
        Self {
            hops,
            starts,
            nodes: machine.nodes,
        }
    }

    /// The places of the links from one node to another.
    #[inline(always)]
    pub(crate) fn between(&self, from: usize, to: usize) -> std::ops::Range<usize> {
        let pair = from * self.nodes + to;
        self.starts[pair] as usize..self.starts[pair + 1] as usize
    }
}
