//! The simulator's model of a machine: cores, shared caches, memory controllers and links, with times in picoseconds.
//!
//! Cores and caches come from the topology, latencies and bandwidths from the hardware figures of a described machine
//! (`machines/NAME.toml`); figures that machine files do not have are [`Parameters`], presets that are named in the
//! result.

use numaloc_model::LogicalPu;
use numaloc_topology::{Hardware, LlcReplacement, ObjectKind, Topology};

use crate::NS;
pub use crate::cache::{Replacement, Shape};
pub use crate::pages::PageCosts;
pub use crate::parameters::{Energy, Parameters};

/// Why a machine cannot be simulated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum MachineError {
    /// The machine has no latencies and bandwidths.
    #[error(
        "machine {0} has no hardware figures; expected one of those that `numaloc machines` lists, or a machine file with a [hardware] table"
    )]
    NoHardware(String),
    /// Memory of one node cannot be reached from another.
    #[error("machine {machine} has no links that lead from node {from} to node {to}")]
    NoRoute {
        /// Its name.
        machine: String,
        /// Logical node.
        from: usize,
        /// Logical node.
        to: usize,
    },
    /// The hardware figures have no shared cache.
    #[error("machine {0} has no cache of level 2 or 3 in its hardware figures")]
    NoCache(String),
    /// A figure so large that times would overflow.
    #[error("machine {machine}: {what} is {found:.3e} ns, expected at most {most:.0e} ns")]
    TooSlow {
        /// Its name.
        machine: String,
        /// The kind of time.
        what: &'static str,
        /// Its value.
        found: f64,
        /// Its limit.
        most: f64,
    },
    /// The machine exceeds a limit of the simulator.
    #[error("machine {machine} has {count} {what}, the simulator takes {most}")]
    TooLarge {
        /// Its name.
        machine: String,
        /// The kind of component.
        what: &'static str,
        /// Their number.
        count: usize,
        /// The limit.
        most: usize,
    },
}

/// Position of a PU in the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its core: the PUs that share the private caches.
    pub core: u32,
    /// Its last-level cache.
    pub group: u32,
    /// Its NUMA node.
    pub node: u32,
}

/// A directed link.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkModel {
    /// Logical node it leaves.
    pub from: usize,
    /// Logical node it enters.
    pub to: usize,
    /// Picoseconds a byte.
    pub ps_per_byte: f64,
    /// Picoseconds from one end to the other.
    pub hop: u64,
}

/// A machine with all times in picoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Display name.
    pub name: String,
    /// Bytes of a line.
    pub line_bytes: u64,
    /// Bytes of a page; `None`: those of the recording machine.
    pub page_bytes: Option<u64>,
    /// By logical PU.
    pub pus: Vec<Place>,
    /// Node of each core's PUs, by core.
    pub core_node: Vec<u32>,
    /// Last-level cache of each core.
    pub core_group: Vec<u32>,
    /// NUMA nodes, those without PUs included.
    pub nodes: usize,
    /// Last-level caches.
    pub groups: usize,
    /// The largest private cache.
    pub private: Shape,
    /// Bytes of the largest private cache.
    pub private_bytes: u64,
    /// A last-level cache.
    pub llc: Shape,
    /// Latency of a hit in the largest private cache.
    pub private_latency: u64,
    /// Latency of a hit in the last-level cache.
    pub llc_latency: u64,
    /// Latency from a core to idle memory, by the memory's node; links are added.
    pub memory_latency: Vec<u64>,
    /// Service time of a controller for a line that is read, by node.
    pub service: Vec<u64>,
    /// The same for a line that is written.
    pub write_service: Vec<u64>,
    /// Directed links.
    pub links: Vec<LinkModel>,
    /// Links from node `a` to node `b`, in order, at `a * nodes + b`.
    pub routes: Vec<Vec<u16>>,
    /// Time of an access served by a private cache.
    pub access: f64,
    /// Constants of the model.
    pub parameters: Parameters,
}

/// Largest number of last-level caches: the directory has a bit for each.
const MOST_GROUPS: usize = 32;
/// Longest latency or service time, in nanoseconds: sums of many longer ones would not fit 64 bits.
const MOST_NS: f64 = 1e6;
/// Largest number of NUMA nodes.
const MOST_NODES: usize = 256;

impl Machine {
    /// Creates the model of the machine that `topology` describes.
    ///
    /// # Errors
    /// [`MachineError`] if its hardware figures are missing or insufficient.
    pub fn new(topology: &Topology, mut parameters: Parameters) -> Result<Self, MachineError> {
        let name = topology.name().to_owned();
        let Some(hardware) = topology.hardware() else {
            return Err(MachineError::NoHardware(name));
        };
        parameters.inclusive |= hardware.llc_inclusive;
        let of_file = match hardware.llc_replacement {
            LlcReplacement::Lru => Replacement::Lru,
            LlcReplacement::Rrip => Replacement::Rrip,
        };
        parameters.llc_replacement.get_or_insert(of_file);
        let cycle = 1e12 / hardware.clock_hz;
        let mut caches: Vec<_> = hardware
            .caches
            .iter()
            .filter(|cache| cache.level > 1)
            .collect();
        caches.sort_by_key(|cache| cache.level);
        let Some(last) = caches.last() else {
            return Err(MachineError::NoCache(name));
        };
        let private = caches.iter().rev().nth(1).copied();
        let private = private.or(hardware.caches.iter().find(|cache| cache.level == 1));
        let private = private.ok_or_else(|| MachineError::NoCache(name.clone()))?;
        let nodes = topology.nodes().len();
        let place = Places::new(topology, last.level, private.level);
        let too_large = |what, count, most| MachineError::TooLarge {
            machine: name.clone(),
            what,
            count,
            most,
        };
        if place.groups > MOST_GROUPS {
            return Err(too_large("last-level caches", place.groups, MOST_GROUPS));
        }
        if nodes > MOST_NODES {
            return Err(too_large("NUMA nodes", nodes, MOST_NODES));
        }
        let line = hardware.line_bytes;
        if let Some((what, found)) = too_slow(hardware, nodes, &parameters) {
            return Err(MachineError::TooSlow {
                machine: name,
                what,
                found,
                most: MOST_NS,
            });
        }
        let memory = |node| hardware.memory_of(node);
        let service = |bytes_per_s: f64| (line as f64 / bytes_per_s * 1e12).round() as u64;
        let links = links(hardware);
        let routes = routes(&links, nodes).map_err(|(from, to)| MachineError::NoRoute {
            machine: name.clone(),
            from,
            to,
        })?;
        let of_cycles = |cycles: f64| (cycles * cycle).round() as u64;
        Ok(Self {
            line_bytes: line,
            nodes,
            groups: place.groups,
            private: Shape::of_bytes(private.size_bytes, private.associativity, line),
            private_bytes: private.size_bytes,
            llc: Shape::of_bytes(last.size_bytes, last.associativity, line),
            private_latency: of_cycles(private.latency_cycles),
            llc_latency: of_cycles(last.latency_cycles),
            memory_latency: (0..nodes)
                .map(|node| (memory(node).0 * NS as f64).round() as u64)
                .collect(),
            service: (0..nodes).map(|node| service(memory(node).1)).collect(),
            write_service: write_service(hardware, nodes),
            links,
            routes,
            access: parameters.cycles_per_access * cycle,
            page_bytes: hardware.page_bytes,
            parameters,
            pus: place.pus,
            core_node: place.core_node,
            core_group: place.core_group,
            name,
        })
    }

    /// Position of a PU in the machine.
    ///
    /// # Panics
    /// If the machine has no such PU.
    #[must_use]
    pub fn place(&self, pu: LogicalPu) -> Place {
        self.pus[pu.index()]
    }

    /// Idle latency of memory of node `to` for a core of node `from`, without the look-up in the last-level cache.
    pub(crate) fn idle_latency(&self, from: usize, to: usize) -> u64 {
        let on = |route: &[u16], bytes: u64| -> f64 {
            let link = |&link: &u16| {
                let link = &self.links[usize::from(link)];
                link.hop as f64 + bytes as f64 * link.ps_per_byte
            };
            route.iter().map(link).sum()
        };
        let data = self.line_bytes + self.parameters.header_bytes;
        let there = on(
            &self.routes[from * self.nodes + to],
            self.parameters.request_bytes,
        );
        let back = on(&self.routes[to * self.nodes + from], data);
        (there + back).round() as u64 + self.memory_latency[to]
    }

    /// A node of the cores below a last-level cache; 0 if it has none.
    pub(crate) fn node_of_group(&self, group: usize) -> u32 {
        let core = self.core_group.iter().position(|&of| of as usize == group);
        core.map_or(0, |core| self.core_node[core])
    }
}

/// Cores and last-level caches of a topology.
struct Places {
    pus: Vec<Place>,
    core_node: Vec<u32>,
    core_group: Vec<u32>,
    groups: usize,
}

impl Places {
    fn new(topology: &Topology, last: u8, private: u8) -> Self {
        // The object of that cache level above a PU, if hwloc knows it.
        let above = |pu: usize, level: u8| {
            let mut at = Some(topology.pus()[pu].object);
            while let Some(object) = at {
                if topology.objects()[object as usize].kind == ObjectKind::Cache(level) {
                    return Some(object);
                }
                at = topology.objects()[object as usize].parent;
            }
            None
        };
        let (mut cores, mut groups) = (Numbers::default(), Numbers::default());
        let (mut core_node, mut core_group) = (Vec::new(), Vec::new());
        let pus = (0..topology.pus().len())
            .map(|pu| {
                let found = &topology.pus()[pu];
                let node = found.node.0;
                // Without that cache in the tree, private caches belong to a core, the last-level cache to a node.
                let core = above(pu, private).unwrap_or(found.core);
                let group = above(pu, last).map_or(u64::from(node) | 1 << 32, u64::from);
                let core = cores.number(u64::from(core));
                let group = groups.number(group);
                if core as usize == core_node.len() {
                    core_node.push(node);
                    core_group.push(group);
                }
                Place { core, group, node }
            })
            .collect();
        Self {
            pus,
            core_node,
            core_group,
            groups: groups.0.len(),
        }
    }
}

/// Dense numbers in order of first appearance.
#[derive(Default)]
struct Numbers(Vec<u64>);

impl Numbers {
    fn number(&mut self, of: u64) -> u32 {
        let at = self.0.iter().position(|&known| known == of);
        at.unwrap_or_else(|| {
            self.0.push(of);
            self.0.len() - 1
        }) as u32
    }
}

/// The first time of the machine that is no number or exceeds [`MOST_NS`], with its kind, in nanoseconds.
fn too_slow(
    hardware: &Hardware,
    nodes: usize,
    parameters: &Parameters,
) -> Option<(&'static str, f64)> {
    let line = hardware.line_bytes as f64;
    let message = line + parameters.header_bytes.max(parameters.request_bytes) as f64;
    let cycle_ns = 1e9 / hardware.clock_hz;
    let access = [(
        "the time of an access",
        parameters.cycles_per_access * cycle_ns,
    )];
    let of_caches = hardware.caches.iter();
    let of_caches =
        of_caches.map(|cache| ("the latency of a cache", cache.latency_cycles * cycle_ns));
    let of_memory = (0..nodes).flat_map(|node| {
        let (latency, bandwidth) = hardware.memory_of(node);
        [
            ("the latency of memory", latency),
            ("a line at a controller", line / bandwidth * 1e9),
            (
                "a line at a controller",
                line / hardware.write_bytes_per_s(node) * 1e9,
            ),
        ]
    });
    let of_links = hardware.links.iter().flat_map(|link| {
        let on_link = message / link.bandwidth_bytes_per_s * 1e9;
        [
            ("a link's latency", link.latency_ns),
            ("a message on a link", on_link),
        ]
    });
    let mut all = access
        .into_iter()
        .chain(of_memory)
        .chain(of_caches)
        .chain(of_links);
    all.find(|(_, found)| found.is_nan() || *found > MOST_NS)
}

/// Service time of each controller for a line that is written.
fn write_service(hardware: &Hardware, nodes: usize) -> Vec<u64> {
    let service = |node| hardware.line_bytes as f64 / hardware.write_bytes_per_s(node) * 1e12;
    (0..nodes)
        .map(|node| service(node).round() as u64)
        .collect()
}

fn links(hardware: &Hardware) -> Vec<LinkModel> {
    let model = |link: &numaloc_topology::Link| LinkModel {
        from: link.from as usize,
        to: link.to as usize,
        ps_per_byte: 1e12 / link.bandwidth_bytes_per_s,
        hop: (link.latency_ns * NS as f64).round() as u64,
    };
    hardware.links.iter().map(model).collect()
}

/// Shortest routes by latency, then by links, then by the lowest link numbers; on error, a pair without a route.
fn routes(links: &[LinkModel], nodes: usize) -> Result<Vec<Vec<u16>>, (usize, usize)> {
    let mut routes = vec![Vec::new(); nodes * nodes];
    for from in 0..nodes {
        // Bellman-Ford: machines have few nodes, and ties must be resolved the same way everywhere.
        let mut best: Vec<Option<(u64, Vec<u16>)>> = vec![None; nodes];
        best[from] = Some((0, Vec::new()));
        for _ in 1..nodes {
            for (number, link) in links.iter().enumerate() {
                let Some((cost, route)) = &best[link.from] else {
                    continue;
                };
                let mut longer = route.clone();
                longer.push(number as u16);
                let new = (cost + link.hop, longer);
                let is_better = best[link.to]
                    .as_ref()
                    .is_none_or(|old| (new.0, new.1.len(), &new.1) < (old.0, old.1.len(), &old.1));
                if is_better {
                    best[link.to] = Some(new);
                }
            }
        }
        for (to, found) in best.into_iter().enumerate() {
            routes[from * nodes + to] = found.ok_or((from, to))?.1;
        }
    }
    Ok(routes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(from: usize, to: usize, hop: u64) -> LinkModel {
        LinkModel {
            from,
            to,
            ps_per_byte: 50.0,
            hop,
        }
    }

    #[test]
    fn routes_are_shortest_and_ties_go_to_the_lowest_links() {
        // A ring of four, one way slower between 2 and 3.
        let ring = [
            link(0, 1, 10),
            link(1, 2, 10),
            link(2, 3, 30),
            link(3, 0, 10),
            link(1, 0, 10),
            link(2, 1, 10),
            link(3, 2, 30),
            link(0, 3, 10),
        ];
        let found = routes(&ring, 4).unwrap();
        assert_eq!(found[2], [0, 1], "0 to 2 by way of 1");
        assert_eq!(
            found[2 * 4 + 3],
            [2],
            "one link of 30 or three of 10: fewer links"
        );
        assert_eq!(found[3 * 4 + 1], [3, 0]);
        assert!(found[5].is_empty());
        assert_eq!(routes(&ring[..1], 2), Err((1, 0)));
    }

    #[test]
    fn every_described_machine_can_be_simulated() {
        for (name, _) in numaloc_topology::described_machines() {
            let topology = numaloc_topology::resolve(&name).unwrap();
            let machine = Machine::new(&topology, Parameters::default())
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(machine.pus.len(), topology.pus().len());
            assert!(machine.core_node.len() <= machine.pus.len());
            assert!(machine.groups >= machine.nodes / 2, "{name}");
        }
    }

    /// Idle latency of memory of `to` for a core of `from`, in picoseconds.
    fn latency(machine: &Machine, from: usize, to: usize) -> f64 {
        machine.idle_latency(from, to) as f64
    }

    #[test]
    fn machines_of_the_papers_have_the_numa_factors_that_the_papers_measured() {
        for (name, far, factor) in [
            ("altix-450", 1, 2.1),
            ("xeon-x7550", 3, 1.5),
            ("opteron-6386", 3, 2.8),
        ] {
            let topology = numaloc_topology::resolve(name).unwrap();
            let machine = Machine::new(&topology, Parameters::default()).unwrap();
            let found = latency(&machine, 0, far) / latency(&machine, 0, 0);
            assert!((found - factor).abs() < 0.005, "{name}: {found}");
        }
    }

    #[test]
    fn memory_without_cpus_has_its_own_latency_and_bandwidth() {
        let topology = numaloc_topology::resolve("cxl-2s").unwrap();
        let machine = Machine::new(&topology, Parameters::default()).unwrap();
        assert!(!machine.core_node.contains(&1) && machine.core_node.contains(&2));
        let (near, behind) = (latency(&machine, 0, 0), latency(&machine, 0, 1));
        assert!((240_000.0..260_000.0).contains(&behind), "{behind}");
        assert!(behind < latency(&machine, 2, 1) && near < behind);
        assert!(machine.service[1] > 8 * machine.service[0]);
    }

    #[test]
    fn figures_that_would_overflow_times_are_refused() {
        let topology = numaloc_topology::resolve("purple").unwrap();
        let parameters = Parameters {
            cycles_per_access: 1e30,
            ..Parameters::default()
        };
        let error = Machine::new(&topology, parameters).unwrap_err().to_string();
        assert!(error.contains("time of an access"), "{error}");
    }

    #[test]
    fn a_machine_without_figures_is_refused() {
        let topology = numaloc_topology::resolve("numa:2 core:2 pu:1").unwrap();
        let error = Machine::new(&topology, Parameters::default()).unwrap_err();
        assert!(matches!(error, MachineError::NoHardware(_)), "{error}");
    }
}
