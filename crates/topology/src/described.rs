//! Described machines: an hwloc synthetic string plus what hwloc does not know.

use serde::Deserialize;

/// A directed link between two NUMA nodes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Logical index of the node it leaves.
    pub from: u32,
    /// Logical index of the node it enters.
    pub to: u32,
    /// Bytes per second in this direction.
    pub bandwidth_bytes_per_s: f64,
    /// Nanoseconds per hop.
    pub latency_ns: f64,
}

/// A cache level as the simulator needs it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// 1, 2 or 3.
    pub level: u8,
    /// Bytes.
    pub size_bytes: u64,
    /// Ways.
    pub associativity: u32,
    /// Core cycles from request to data.
    pub latency_cycles: f64,
}

/// Latencies, bandwidths and links of a machine.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hardware {
    /// Core clock.
    pub clock_hz: f64,
    /// Bytes per cache line.
    pub line_bytes: u64,
    /// From L1 outwards.
    pub caches: Vec<Cache>,
    /// Nanoseconds from a core to its own node's idle memory.
    pub memory_latency_ns: f64,
    /// Sustained bytes per second of one node's controller.
    pub memory_bandwidth_bytes_per_s: f64,
    /// Directed links; nodes without a link between them route over the shortest path.
    #[serde(default)]
    pub links: Vec<Link>,
}

/// A file of `machines/`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Described {
    pub name: String,
    /// What it is and where its numbers come from.
    pub description: String,
    /// hwloc synthetic string.
    pub synthetic: String,
    /// Nodes x nodes, row after row; 10 = local.
    #[serde(default)]
    pub node_distances: Vec<f64>,
    pub hardware: Option<Hardware>,
}
