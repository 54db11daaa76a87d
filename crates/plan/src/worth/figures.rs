//! What the model of worth knows of a machine: figures of its description, and stated constants for what it does not
//! state.

use numaloc_analysis::beyond_caches::PRIVATE_CACHE;
use numaloc_placement::Links;
use numaloc_placement::joint::Weights;
pub use numaloc_placement::tiers::{
    CYCLES_PER_ACCESS, MESSAGE_BYTES, OUTSTANDING, PREFETCHED, WINDOW_ACCESSES,
};
use numaloc_topology::{ObjectKind, Topology};

/// Clock of a machine whose description has none.
const CLOCK_HZ: f64 = 2.5e9;
/// Share of a last-level cache for each core of a machine that does not state its size: servers since 2012 have 1.25 to
/// 2.5 MiB.
const SHARED_CACHE_PER_CORE: u64 = 2 << 20;
/// Latency of a last-level cache in cycles if the machine states none.
const SHARED_CACHE_CYCLES: f64 = 50.0;

/// Where a PU is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seat {
    /// Its core: PUs that share the private caches.
    pub core: usize,
    /// Its last-level cache.
    pub group: usize,
    /// Its node.
    pub node: usize,
}

/// A machine's figures; times in seconds.
#[derive(Clone, Debug)]
pub(super) struct Figures {
    /// By PU.
    pub seats: Vec<Seat>,
    pub cores: usize,
    pub groups: usize,
    pub nodes: usize,
    /// An access that a private cache answers.
    pub access_s: f64,
    /// A hit in the last-level cache.
    pub shared_s: f64,
    /// Bytes of a private and of a last-level cache.
    pub private_bytes: u64,
    pub shared_bytes: u64,
    /// Seconds for a line from memory of a node (column) to a core of a node (row), without queues.
    pub memory_s: Vec<f64>,
    /// Seconds of a node's controller for a line that is read, and for one that is written.
    pub service_s: Vec<f64>,
    pub write_s: Vec<f64>,
    /// Seconds for a line from a last-level cache of a node (column) to a core of a node (row).
    pub transfer_s: Vec<f64>,
    /// Seconds for a request from a node (row) to another (column).
    pub request_s: Vec<f64>,
    pub links: Links,
    pub line_bytes: f64,
}

impl Figures {
    /// Seconds of a transfer of a line from one core's cache to another.
    pub(super) fn between_s(&self, from: Seat, to: Seat) -> f64 {
        match from.group == to.group {
            true => self.shared_s,
            false => self.transfer_s[to.node * self.nodes + from.node],
        }
    }

    pub(super) fn of(topology: &Topology) -> Self {
        let weights = Weights::of(topology);
        let hardware = topology.hardware();
        let nodes = topology.nodes().len();
        let links = Links::of(topology, weights.link_bytes_per_s, weights.local_latency_s);
        let (private_level, shared_level) = levels(topology);
        let seats = seats(topology, private_level, shared_level);
        let count = |of: fn(&Seat) -> usize| seats.iter().map(of).max().map_or(1, |most| most + 1);
        let (cores, groups) = (count(|seat| seat.core), count(|seat| seat.group));
        let cycle_s = 1.0 / hardware.map_or(CLOCK_HZ, |hardware| hardware.clock_hz);
        let cache = |level: Option<u8>| {
            let of_hardware = hardware.and_then(|hardware| {
                let cache = hardware.caches.iter().find(|c| Some(c.level) == level)?;
                Some((cache.size_bytes, cache.latency_cycles))
            });
            of_hardware.or_else(|| Some((bytes_of(topology, level?)?, SHARED_CACHE_CYCLES)))
        };
        let cores_of_group = (cores as u64).div_ceil(groups as u64);
        let (shared_bytes, shared_cycles) = cache(shared_level)
            .unwrap_or((SHARED_CACHE_PER_CORE * cores_of_group, SHARED_CACHE_CYCLES));
        let shared_s = shared_cycles * cycle_s;
        let line_bytes = weights.line_bytes;
        let memory = |node| {
            hardware.map_or(
                (weights.local_latency_s, weights.controller_bytes_per_s),
                |hardware| {
                    let (ns, bytes_per_s) = hardware.memory_of(node);
                    (ns * 1e-9, bytes_per_s)
                },
            )
        };
        let pairs = || (0..nodes * nodes).map(|at| (at / nodes, at % nodes));
        let message_s = |from, to, bytes: f64| {
            let route = links.route(from, to).iter();
            let hop = |&link: &usize| links.latency_s()[link] + bytes / links.bytes_per_s()[link];
            route.map(hop).sum::<f64>()
        };
        let both_ways_s = |core, other| {
            message_s(core, other, MESSAGE_BYTES)
                + message_s(other, core, line_bytes + MESSAGE_BYTES)
        };
        Self {
            memory_s: pairs()
                .map(|(core, node)| memory(node).0 + both_ways_s(core, node))
                .collect(),
            transfer_s: pairs()
                .map(|(core, other)| 2.0 * shared_s + both_ways_s(core, other))
                .collect(),
            request_s: pairs()
                .map(|(from, to)| message_s(from, to, MESSAGE_BYTES))
                .collect(),
            service_s: (0..nodes).map(|node| line_bytes / memory(node).1).collect(),
            write_s: (0..nodes)
                .map(|node| {
                    line_bytes / hardware.map_or(memory(node).1, |h| h.write_bytes_per_s(node))
                })
                .collect(),
            access_s: CYCLES_PER_ACCESS * cycle_s,
            private_bytes: cache(private_level).map_or(PRIVATE_CACHE, |found| found.0),
            shared_bytes,
            shared_s,
            line_bytes,
            links,
            seats,
            cores,
            groups,
            nodes,
        }
    }
}

/// Levels of the largest private and of the last-level cache, if known. A single level is private.
fn levels(topology: &Topology) -> (Option<u8>, Option<u8>) {
    let mut levels: Vec<u8> = match topology.hardware() {
        Some(hardware) => hardware.caches.iter().map(|cache| cache.level).collect(),
        None => topology
            .objects()
            .iter()
            .filter_map(|object| match object.kind {
                ObjectKind::Cache(level) => Some(level),
                _ => None,
            })
            .collect(),
    };
    levels.sort_unstable();
    levels.dedup();
    match levels[..] {
        [] => (None, None),
        // Without hardware figures the only known cache may be either: the third level is shared.
        [level] if level >= 3 => (None, Some(level)),
        [level] => (Some(level), None),
        [.., private, shared] => (Some(private), Some(shared)),
    }
}

/// Size of the smallest cache of a level in the tree.
fn bytes_of(topology: &Topology, level: u8) -> Option<u64> {
    let objects = topology.objects().iter();
    objects
        .filter(|object| object.kind == ObjectKind::Cache(level))
        .filter_map(|object| object.cache_bytes)
        .min()
}

/// Core, last-level cache and node of every PU. Where the tree lacks a cache, private caches belong to a core and the
/// last-level cache to a node.
fn seats(topology: &Topology, private: Option<u8>, shared: Option<u8>) -> Vec<Seat> {
    let above = |pu: usize, level: Option<u8>| {
        let kind = ObjectKind::Cache(level?);
        let mut at = Some(topology.pus()[pu].object);
        while let Some(object) = at {
            let found = &topology.objects()[object as usize];
            if found.kind == kind {
                return Some(object);
            }
            at = found.parent;
        }
        None
    };
    let (mut cores, mut groups) = (Vec::new(), Vec::new());
    let number = |list: &mut Vec<u64>, of: u64| {
        list.iter()
            .position(|&known| known == of)
            .unwrap_or_else(|| {
                list.push(of);
                list.len() - 1
            })
    };
    (0..topology.pus().len())
        .map(|pu| {
            let found = &topology.pus()[pu];
            let node = found.node.index();
            let core = above(pu, private).unwrap_or(found.core);
            let group = above(pu, shared).map_or(node as u64 | 1 << 32, u64::from);
            Seat {
                core: number(&mut cores, u64::from(core)),
                group: number(&mut groups, group),
                node,
            }
        })
        .collect()
}
