//! Described machines: an hwloc synthetic string plus data that hwloc does not have.

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

/// A cache level, for the simulator.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// 1, 2 or 3.
    pub level: u8,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Number of ways.
    pub associativity: u32,
    /// Core cycles from request to data.
    pub latency_cycles: f64,
}

/// Replacement in last-level caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LlcReplacement {
    /// The least recently used line.
    #[default]
    Lru,
    /// The line whose next use is predicted latest (static re-reference interval prediction).
    Rrip,
}

/// Memory of one NUMA node that differs from the others': HBM, or memory behind CXL.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeMemory {
    /// Logical index of the node.
    pub node: u32,
    /// Latency in ns of the node's idle memory, links to it not included.
    pub memory_latency_ns: f64,
    /// Sustained bytes per second of the node's controller.
    pub memory_bandwidth_bytes_per_s: f64,
    /// Those of lines that are written, if memory is slower there.
    #[serde(default)]
    pub memory_write_bandwidth_bytes_per_s: Option<f64>,
}

/// Latencies, bandwidths and links of a machine.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hardware {
    /// Core clock in Hz.
    pub clock_hz: f64,
    /// Bytes per cache line.
    pub line_bytes: u64,
    /// Bytes per page, if they differ from those of the recording machine.
    #[serde(default)]
    pub page_bytes: Option<u64>,
    /// From L1 outwards.
    pub caches: Vec<Cache>,
    /// Whether a line that a last-level cache evicts leaves the private caches below it too.
    #[serde(default)]
    pub llc_inclusive: bool,
    /// Which line a set of a last-level cache evicts.
    #[serde(default)]
    pub llc_replacement: LlcReplacement,
    /// Latency in ns from a core to its own node's idle memory.
    pub memory_latency_ns: f64,
    /// Sustained bytes per second of one node's controller.
    pub memory_bandwidth_bytes_per_s: f64,
    /// Those of lines that are written, if memory is slower there.
    #[serde(default)]
    pub memory_write_bandwidth_bytes_per_s: Option<f64>,
    /// Nodes whose memory has another latency and bandwidth.
    #[serde(default)]
    pub nodes: Vec<NodeMemory>,
    /// Directed links; nodes without a link between them route over the shortest path.
    #[serde(default)]
    pub links: Vec<Link>,
}

impl Hardware {
    /// Latency in ns and bytes per second of the memory of the node with logical index `node`.
    #[must_use]
    pub fn memory_of(&self, node: usize) -> (f64, f64) {
        let given = self.nodes.iter().find(|given| given.node as usize == node);
        given.map_or(
            (self.memory_latency_ns, self.memory_bandwidth_bytes_per_s),
            |given| (given.memory_latency_ns, given.memory_bandwidth_bytes_per_s),
        )
    }

    /// Bytes per second at which the memory of the node with logical index `node` takes lines that are written.
    #[must_use]
    pub fn write_bytes_per_s(&self, node: usize) -> f64 {
        let given = self.nodes.iter().find(|given| given.node as usize == node);
        let written = match given {
            Some(given) => given.memory_write_bandwidth_bytes_per_s,
            None => self.memory_write_bandwidth_bytes_per_s,
        };
        written.unwrap_or(self.memory_of(node).1)
    }

    /// Checks that the hardware is plausible; `nodes` is the machine's number of nodes.
    ///
    /// # Errors
    /// A message with the field, its value, and what was expected.
    pub(crate) fn check(&self, nodes: usize) -> Result<(), String> {
        let above_zero = |field: &str, value: f64| {
            if value.is_finite() && value > 0.0 {
                return Ok(());
            }
            Err(format!(
                "{field} is {value}, expected a finite number above 0"
            ))
        };
        above_zero("clock_hz", self.clock_hz)?;
        above_zero("memory_latency_ns", self.memory_latency_ns)?;
        above_zero(
            "memory_bandwidth_bytes_per_s",
            self.memory_bandwidth_bytes_per_s,
        )?;
        if let Some(written) = self.memory_write_bandwidth_bytes_per_s {
            above_zero("memory_write_bandwidth_bytes_per_s", written)?;
        }
        if !self.line_bytes.is_power_of_two() || !(8..=4096).contains(&self.line_bytes) {
            return Err(format!(
                "line_bytes is {}, expected a power of two from 8 to 4096",
                self.line_bytes
            ));
        }
        if let Some(bytes) = self.page_bytes
            && (!bytes.is_power_of_two() || !(4096..=1 << 30).contains(&bytes))
        {
            return Err(format!(
                "page_bytes is {bytes}, expected a power of two from 4096 to 2^30"
            ));
        }
        for (at, memory) in self.nodes.iter().enumerate() {
            let field = |name: &str| format!("{name} of entry {at} of nodes");
            above_zero(&field("memory_latency_ns"), memory.memory_latency_ns)?;
            above_zero(
                &field("memory_bandwidth_bytes_per_s"),
                memory.memory_bandwidth_bytes_per_s,
            )?;
            if let Some(written) = memory.memory_write_bandwidth_bytes_per_s {
                above_zero(&field("memory_write_bandwidth_bytes_per_s"), written)?;
            }
            if memory.node as usize >= nodes {
                return Err(format!(
                    "{} is {}, expected a node below {nodes}",
                    field("node"),
                    memory.node
                ));
            }
            if self.nodes[..at]
                .iter()
                .any(|other| other.node == memory.node)
            {
                return Err(format!("nodes has two entries for node {}", memory.node));
            }
        }
        for cache in &self.caches {
            let field = |name: &str| format!("{name} of the cache of level {}", cache.level);
            above_zero(&field("latency_cycles"), cache.latency_cycles)?;
            above_zero(&field("size_bytes"), cache.size_bytes as f64)?;
            above_zero(&field("associativity"), cache.associativity.into())?;
        }
        for (at, link) in self.links.iter().enumerate() {
            let field = |name: &str| format!("{name} of link {at}");
            above_zero(&field("bandwidth_bytes_per_s"), link.bandwidth_bytes_per_s)?;
            above_zero(&field("latency_ns"), link.latency_ns)?;
            for (name, node) in [("from", link.from), ("to", link.to)] {
                if node as usize >= nodes {
                    return Err(format!(
                        "{} is {node}, expected a node below {nodes}",
                        field(name)
                    ));
                }
            }
            if let Some(first) = self.links[..at]
                .iter()
                .position(|other| (other.from, other.to) == (link.from, link.to))
            {
                return Err(format!("link {at} joins the same nodes as link {first}"));
            }
        }
        Ok(())
    }
}

/// A machine file (`machines/`).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Described {
    pub name: String,
    /// Description of the machine, with the source of its numbers.
    pub description: String,
    /// hwloc synthetic string.
    pub synthetic: String,
    /// Nodes x nodes, row after row; 10 = local.
    #[serde(default)]
    pub node_distances: Vec<f64>,
    pub hardware: Option<Hardware>,
}
