//! The machine as plain data, and the distances used by policies.

use numaloc_model::{LogicalNode, LogicalPu, OsNode, OsPu};
use serde::{Deserialize, Serialize};
use std::ops::Range;

use crate::described::Hardware;
use crate::error::DistanceError;
use crate::links::Links;
use crate::network::Network;

/// The kind of an object of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ObjectKind {
    /// The root: one shared-memory machine, or a whole cluster.
    Machine,
    /// A network switch or another group of hosts in a cluster.
    Switch,
    /// One host of a cluster.
    Host,
    /// A chip in a socket; may hold several NUMA nodes.
    Package,
    /// A group without a better name (hwloc), often around a NUMA node.
    Group,
    /// A die of a package.
    Die,
    /// A cache of this level (1 to 5), shared by the PUs below it.
    Cache(u8),
    /// One or more PUs that share L1 and L2.
    Core,
    /// A processing unit: a hardware thread.
    Pu,
}

/// An object of the tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Object {
    /// Kind of the object.
    pub kind: ObjectKind,
    /// Index of the parent; `None` for the root.
    pub parent: Option<u32>,
    /// Indexes of the children, in logical order.
    pub children: Vec<u32>,
    /// The PUs below it, a contiguous range of logical indexes.
    pub pus: Range<u32>,
    /// Number of steps from the root.
    pub depth: u32,
    /// Size in bytes, for a cache.
    pub cache_bytes: Option<u64>,
    /// Distance of two PUs whose lowest common ancestor this is (see [`Topology::distance`]).
    pub distance: f64,
}

/// A processing unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pu {
    /// The kernel's number.
    pub os: OsPu,
    /// Its core, as an index into [`Topology::objects`]; the PU itself if cores are not known.
    pub core: u32,
    /// Its home: the NUMA node that is local to it (the first of several).
    pub node: LogicalNode,
    /// Its own index into [`Topology::objects`].
    pub object: u32,
}

/// A NUMA node.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The kernel's number.
    pub os: OsNode,
    /// Memory in bytes; 0 if it has none, or if no node's is known (see [`Topology::memory_of`]).
    pub memory_bytes: u64,
    /// PUs whose home it is, ascending; empty for memory-only nodes.
    pub pus: Vec<LogicalPu>,
    /// The object to which its memory is attached, as an index into [`Topology::objects`].
    pub object: u32,
}

/// A level of the tree on which objects have more than one child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    /// Kind of the objects that branch here.
    pub kind: ObjectKind,
    /// Kind of their children.
    pub child_kind: ObjectKind,
    /// Smallest and largest number of children of an object at this level.
    pub arity: (usize, usize),
}

/// Distance between PUs of different NUMA nodes if neither firmware nor user states it: the usual
/// value of the ACPI SLIT for one hop, with 10 as local.
pub const DEFAULT_REMOTE: f64 = 20.0;
/// Distance of PUs that share only the node: that of local memory.
pub const DEFAULT_SAME_NODE: f64 = 10.0;
/// Distance of PUs that share the last-level cache. Relative to memory at 10: an LLC hit costs about a third of local
/// DRAM.
pub const DEFAULT_SAME_CACHE: f64 = 4.0;
/// Distance of PUs that share the core and its first-level cache.
pub const DEFAULT_SAME_CORE: f64 = 1.0;

/// A machine. Plain data; see the crate's documentation for numbering.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    pub(crate) name: String,
    pub(crate) objects: Vec<Object>,
    pub(crate) pus: Vec<Pu>,
    pub(crate) nodes: Vec<Node>,
    /// Row-major nodes x nodes; `None` if the tree determines the distances.
    pub(crate) node_matrix: Option<Vec<f64>>,
    pub(crate) hardware: Option<Hardware>,
    pub(crate) this_machine: bool,
    /// Hosts of a cluster: their object and name, in logical order; empty for a single machine.
    pub(crate) hosts: Vec<(u32, String)>,
    /// The network between the hosts of a cluster.
    pub(crate) network: Option<Network>,
    /// What a cluster file says of the links of that network.
    pub(crate) links: Links,
}

impl Topology {
    /// Name or synthetic string, for users.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether this is the machine on which we run, so that a plan for it can be applied.
    #[must_use]
    pub fn is_this_machine(&self) -> bool {
        self.this_machine
    }

    /// Objects, depth first, the root first.
    #[must_use]
    pub fn objects(&self) -> &[Object] {
        &self.objects
    }

    /// PUs by logical index.
    #[must_use]
    pub fn pus(&self) -> &[Pu] {
        &self.pus
    }

    /// NUMA nodes by logical index.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The hosts of a cluster as (index into [`Self::objects`], name); empty for a single machine.
    #[must_use]
    pub fn hosts(&self) -> &[(u32, String)] {
        &self.hosts
    }

    /// The name of the host at that index into [`Self::objects`].
    #[must_use]
    pub fn host_name(&self, object: u32) -> Option<&str> {
        let found = self.hosts.binary_search_by_key(&object, |(at, _)| *at);
        found.ok().map(|at| self.hosts[at].1.as_str())
    }

    /// The network between the hosts of a cluster; `None` for a single machine.
    #[must_use]
    pub fn network(&self) -> Option<&Network> {
        self.network.as_ref()
    }

    /// What is stated of the network's links.
    #[must_use]
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// This machine with other links of its network.
    #[must_use]
    pub fn with_links(mut self, links: Links) -> Self {
        self.links = links;
        self
    }

    /// Latencies, bandwidths and links, if the machine is described or measured.
    #[must_use]
    pub fn hardware(&self) -> Option<&Hardware> {
        self.hardware.as_ref()
    }

    /// This machine with the latencies, bandwidths and links of a description of it; `None` if the description has
    /// another number of PUs or nodes, or no such figures.
    #[must_use]
    pub fn with_hardware_of(mut self, described: &Self) -> Option<Self> {
        let same = |count: fn(&Self) -> usize| count(&self) == count(described);
        if !same(|machine| machine.pus().len()) || !same(|machine| machine.nodes().len()) {
            return None;
        }
        self.hardware = Some(described.hardware.clone()?);
        Some(self)
    }

    /// The node that is home to a PU.
    ///
    /// # Panics
    /// If the machine has no such PU.
    #[must_use]
    pub fn node_of(&self, pu: LogicalPu) -> LogicalNode {
        self.pus[pu.index()].node
    }

    /// The nodes that are home to at least one PU, ascending.
    #[must_use]
    pub fn nodes_with_pus(&self) -> Vec<LogicalNode> {
        (0..self.nodes.len())
            .filter(|&n| !self.nodes[n].pus.is_empty())
            .map(LogicalNode::from_index)
            .collect()
    }

    /// Bytes of memory of a node; `None` if the machine does not state the size of any.
    ///
    /// # Panics
    /// If the machine has no such node.
    #[must_use]
    pub fn memory_of(&self, node: LogicalNode) -> Option<u64> {
        let is_known = self.nodes.iter().any(|node| node.memory_bytes > 0);
        is_known.then(|| self.nodes[node.index()].memory_bytes)
    }

    /// The node from which the kernel takes memory for threads whose home is `home`: itself, or the nearest with memory
    /// if it has none (ties: the lower node).
    ///
    /// # Panics
    /// If the machine has no such node.
    #[must_use]
    pub fn nearest_memory(&self, home: LogicalNode) -> LogicalNode {
        if self.memory_of(home) != Some(0) {
            return home;
        }
        (0..self.nodes.len())
            .map(LogicalNode::from_index)
            .filter(|&node| self.memory_of(node) != Some(0))
            .min_by(|&a, &b| {
                let distance = |node| self.node_distance(home, node);
                distance(a).total_cmp(&distance(b)).then(a.cmp(&b))
            })
            .unwrap_or(home)
    }

    /// The lowest common ancestor of two objects.
    #[must_use]
    pub fn common_ancestor(&self, mut a: u32, mut b: u32) -> u32 {
        while a != b {
            let (da, db) = (
                self.objects[a as usize].depth,
                self.objects[b as usize].depth,
            );
            if da >= db {
                a = self.objects[a as usize].parent.expect("root is common");
            }
            if db >= da {
                b = self.objects[b as usize].parent.expect("root is common");
            }
        }
        a
    }

    /// Distance of two PUs: 0 for the same PU; inside a node that of their lowest common ancestor;
    /// between nodes that of the nodes. Relative units, 10 = local memory by default.
    ///
    /// # Panics
    /// If the machine has no such PU.
    #[must_use]
    pub fn distance(&self, a: LogicalPu, b: LogicalPu) -> f64 {
        if a == b {
            return 0.0;
        }
        let (pa, pb) = (&self.pus[a.index()], &self.pus[b.index()]);
        if let (true, Some(matrix)) = (pa.node != pb.node, &self.node_matrix) {
            return matrix[pa.node.index() * self.nodes.len() + pb.node.index()];
        }
        self.objects[self.common_ancestor(pa.object, pb.object) as usize].distance
    }

    /// Distance between two nodes for memory accesses: from the matrix if there is one, else that of their
    /// lowest common ancestor, and 10 for a node and itself.
    ///
    /// # Panics
    /// If the machine has no such node.
    #[must_use]
    pub fn node_distance(&self, a: LogicalNode, b: LogicalNode) -> f64 {
        if let Some(matrix) = &self.node_matrix {
            return matrix[a.index() * self.nodes.len() + b.index()];
        }
        if a == b {
            return DEFAULT_SAME_NODE;
        }
        let (oa, ob) = (self.nodes[a.index()].object, self.nodes[b.index()].object);
        self.objects[self.common_ancestor(oa, ob) as usize]
            .distance
            .max(DEFAULT_SAME_NODE)
    }

    /// Nodes x nodes distances, row after row, if given by firmware or user; `None` if the
    /// tree determines the distances.
    #[must_use]
    pub fn node_matrix(&self) -> Option<&[f64]> {
        self.node_matrix.as_deref()
    }

    /// The levels at which the tree branches, root first.
    #[must_use]
    pub fn levels(&self) -> Vec<Level> {
        let mut levels: Vec<(u32, Level)> = Vec::new();
        for object in &self.objects {
            let arity = object.children.len();
            if arity < 2 {
                continue;
            }
            let at = match levels.iter().position(|(depth, _)| *depth == object.depth) {
                Some(at) => at,
                None => {
                    let child = &self.objects[object.children[0] as usize];
                    let level = Level {
                        kind: object.kind,
                        child_kind: child.kind,
                        arity: (arity, arity),
                    };
                    levels.push((object.depth, level));
                    levels.len() - 1
                }
            };
            let range = &mut levels[at].1.arity;
            *range = (range.0.min(arity), range.1.max(arity));
        }
        levels.sort_by_key(|(depth, _)| *depth);
        levels.into_iter().map(|(_, level)| level).collect()
    }

    /// The same machine with given distances for its branching levels, root first: the distance of two PUs is that of
    /// the level of their lowest common ancestor. Replaces any node matrix.
    ///
    /// # Errors
    /// [`DistanceError`] if `distances` does not have one value per level, or has one that is not a finite number of at
    /// least 0.
    pub fn with_level_distances(mut self, distances: &[f64]) -> Result<Self, DistanceError> {
        let mut depths: Vec<u32> = self
            .objects
            .iter()
            .filter(|object| object.children.len() > 1)
            .map(|object| object.depth)
            .collect();
        depths.sort_unstable();
        depths.dedup();
        if depths.len() != distances.len() {
            return Err(DistanceError::Levels {
                given: distances.len(),
                levels: depths.len(),
            });
        }
        DistanceError::check(distances)?;
        self.node_matrix = None;
        for object in &mut self.objects {
            if let Ok(level) = depths.binary_search(&object.depth) {
                object.distance = distances[level];
            }
        }
        Ok(self)
    }

    /// The same machine with given nodes x nodes distances, row after row.
    ///
    /// # Errors
    /// [`DistanceError`] for a matrix of another size, or with a value that is not a finite number of at least 0.
    pub fn with_node_distances(mut self, matrix: Vec<f64>) -> Result<Self, DistanceError> {
        let nodes = self.nodes.len();
        if matrix.len() != nodes * nodes {
            return Err(DistanceError::Nodes {
                given: matrix.len(),
                nodes,
            });
        }
        DistanceError::check(&matrix)?;
        self.node_matrix = Some(matrix);
        Ok(self)
    }

    /// Digest of structure and kernel numbers, 16 hexadecimal digits: for two machines with the same
    /// digest, every PU and node of a plan has the same meaning. Memory sizes are not included, because they
    /// change slightly with every kernel.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        // FNV-1a, 64 bit: stable across runs, platforms and releases.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut eat = |word: u64| {
            for byte in word.to_le_bytes() {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        };
        for object in &self.objects {
            // Hypervisors report caches differently; only the objects that carry PUs matter.
            if !matches!(object.kind, ObjectKind::Cache(_)) {
                eat(u64::from(object.pus.start) << 32 | u64::from(object.pus.end));
            }
        }
        for pu in &self.pus {
            eat(u64::from(pu.os.0) << 32 | u64::from(pu.node.0));
        }
        for node in &self.nodes {
            eat(u64::from(node.os.0));
        }
        // The same machines under other host names are another cluster.
        for byte in self
            .hosts
            .iter()
            .flat_map(|(_, name)| name.bytes().chain([0]))
        {
            eat(u64::from(byte));
        }
        format!("{hash:016x}")
    }

    /// One line for users: nodes, cores, PUs.
    #[must_use]
    pub fn summary(&self) -> String {
        let cores = self
            .objects
            .iter()
            .filter(|object| object.kind == ObjectKind::Core)
            .count()
            .max(1);
        let plural = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
        format!(
            "{}, {}, {}",
            plural(self.nodes.len(), "node"),
            plural(cores, "core"),
            plural(self.pus.len(), "PU")
        )
    }

    /// Removes the objects below which no PU is left (packages and groups of memory or accelerators, parts of a machine
    /// that a container may not use): who looks at an object takes for granted that it has a first PU. Their memory is
    /// attached to the nearest object above that stays. Called once after building.
    pub(crate) fn remove_objects_without_pus(&mut self) {
        // The root stays: a machine has a PU. A parent comes before its children.
        let mut moved: Vec<u32> = Vec::with_capacity(self.objects.len());
        let mut kept = 0;
        for object in &self.objects {
            let parent = object.parent.map(|parent| moved[parent as usize]);
            match parent {
                Some(parent) if object.pus.is_empty() => moved.push(parent),
                _ => {
                    moved.push(kept);
                    kept += 1;
                }
            }
        }
        let is_empty: Vec<bool> = self
            .objects
            .iter()
            .map(|object| object.parent.is_some() && object.pus.is_empty())
            .collect();
        let new = |at: u32| moved[at as usize];
        self.objects
            .retain(|object| object.parent.is_none() || !object.pus.is_empty());
        for object in &mut self.objects {
            object.parent = object.parent.map(new);
            object.children.retain(|&child| !is_empty[child as usize]);
            for child in &mut object.children {
                *child = new(*child);
            }
        }
        for pu in &mut self.pus {
            (pu.core, pu.object) = (new(pu.core), new(pu.object));
        }
        for node in &mut self.nodes {
            node.object = new(node.object);
        }
    }

    /// Sets `distance` of every object from what is shared below it. Called once after building.
    pub(crate) fn set_default_distances(&mut self) {
        for at in 0..self.objects.len() {
            let pus = self.objects[at].pus.clone();
            let home = |pu: u32| self.pus[pu as usize].node;
            let one_node = pus.clone().all(|pu| home(pu) == home(pus.start));
            self.objects[at].distance = if !one_node {
                match self.objects[at].kind {
                    // Nodes of one package (sub-NUMA clusters) are nearer to each other than those of two packages.
                    ObjectKind::Package | ObjectKind::Die | ObjectKind::Cache(_) => 12.0,
                    ObjectKind::Host => DEFAULT_REMOTE,
                    ObjectKind::Switch => 100.0,
                    _ => DEFAULT_REMOTE,
                }
            } else {
                match self.objects[at].kind {
                    ObjectKind::Core | ObjectKind::Pu | ObjectKind::Cache(1) => DEFAULT_SAME_CORE,
                    ObjectKind::Cache(2) => 2.0,
                    ObjectKind::Cache(_) => DEFAULT_SAME_CACHE,
                    _ => DEFAULT_SAME_NODE,
                }
            };
        }
    }
}
