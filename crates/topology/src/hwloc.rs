//! Converts hwloc's object tree to a [`Topology`].

use std::collections::BTreeSet;

use hwlocality::Topology as Hwloc;
use hwlocality::bitmap::{BitmapIndex, BitmapRef};
use hwlocality::cpu::cpuset::CpuSet;
use hwlocality::object::TopologyObject;
use hwlocality::object::attributes::ObjectAttributes;
use hwlocality::object::types::ObjectType;
use numaloc_model::{LogicalNode, LogicalPu, OsNode, OsPu};

use crate::error::TopologyError;
use crate::tree::{DEFAULT_SAME_NODE, Node, Object, ObjectKind, Pu, Topology};

fn kind_of(object: &TopologyObject) -> ObjectKind {
    match object.object_type() {
        ObjectType::Machine => ObjectKind::Machine,
        ObjectType::Package => ObjectKind::Package,
        ObjectType::Die => ObjectKind::Die,
        ObjectType::Core => ObjectKind::Core,
        ObjectType::PU => ObjectKind::Pu,
        ObjectType::L1Cache => ObjectKind::Cache(1),
        ObjectType::L2Cache => ObjectKind::Cache(2),
        ObjectType::L3Cache => ObjectKind::Cache(3),
        ObjectType::L4Cache => ObjectKind::Cache(4),
        ObjectType::L5Cache => ObjectKind::Cache(5),
        _ => ObjectKind::Group,
    }
}

/// PUs that may be used, by the kernel's numbers; all if `None`.
pub(crate) type Allowed = BTreeSet<u32>;

struct Builder<'a> {
    objects: Vec<Object>,
    pus: Vec<Pu>,
    nodes: Vec<Node>,
    allowed: Option<&'a Allowed>,
}

/// What an object has from the objects above it.
#[derive(Clone, Default)]
struct Above<'h> {
    parent: Option<u32>,
    core: Option<u32>,
    /// NUMA nodes, the nearest last, and for which PUs they are local.
    homes: Vec<(LogicalNode, BitmapRef<'h, CpuSet>)>,
    /// The nearest object that belongs to a single NUMA node, and the kernel's number of that node, which need not be
    /// among those that may be used.
    single: Option<(u32, u32)>,
}

impl<'a> Builder<'a> {
    /// Adds `object` and everything below it.
    fn add<'h>(&mut self, object: &'h TopologyObject, above: &Above<'h>) -> u32 {
        let kind = kind_of(object);
        let at = self.objects.len() as u32;
        let cache_bytes = match object.attributes() {
            Some(ObjectAttributes::Cache(cache)) => cache.size().map(Into::into),
            _ => None,
        };
        self.objects.push(Object {
            kind,
            parent: above.parent,
            children: Vec::new(),
            pus: self.pus.len() as u32..self.pus.len() as u32,
            depth: above
                .parent
                .map_or(0, |p| self.objects[p as usize].depth + 1),
            cache_bytes,
            distance: 0.0,
        });
        let mut below = above.clone();
        below.parent = Some(at);
        let mut own = Vec::new();
        for memory in object.memory_children() {
            self.add_memory(memory, at, &mut own);
        }
        // The first of several is home; further ones (HBM, CXL) become nodes without PUs.
        own.reverse();
        below.homes.extend(own);
        if let Some(nodes) = object.complete_nodeset()
            && let (Some(first), Some(last)) = (nodes.first_set(), nodes.last_set())
            && first == last
        {
            below.single = Some((at, usize::from(first) as u32));
        }
        if kind == ObjectKind::Core {
            below.core = Some(at);
        }
        if kind == ObjectKind::Pu {
            self.add_pu(object, at, &below);
        }
        let mut children = Vec::new();
        for child in object.normal_children() {
            children.push(self.add(child, &below));
        }
        let end = self.pus.len() as u32;
        let this = &mut self.objects[at as usize];
        this.children = children;
        this.pus.end = end;
        at
    }

    fn add_pu(&mut self, object: &TopologyObject, at: u32, above: &Above) {
        let index = object.os_index().unwrap_or(self.pus.len());
        let os = OsPu(index as u32);
        if self.allowed.is_some_and(|pus| !pus.contains(&os.0)) {
            return;
        }
        let homes = above.homes.iter().rev();
        let mut local = homes
            .filter(|(_, pus)| BitmapIndex::try_from(index).is_ok_and(|index| pus.is_set(index)));
        let node = match local.next() {
            Some(&(node, _)) => node,
            None => self.home_without_memory(above),
        };
        self.nodes[node.index()]
            .pus
            .push(LogicalPu::from_index(self.pus.len()));
        self.pus.push(Pu {
            os,
            core: above.core.unwrap_or(at),
            node,
            object: at,
        });
    }

    /// The home of a PU that no usable node is local to: its own node, whose memory may not be used (a container has
    /// the PUs of one node and the memory of another). All memory that it uses is remote.
    fn home_without_memory(&mut self, above: &Above) -> LogicalNode {
        let (object, os) = above.single.unwrap_or_else(|| {
            let unused = (0..).find(|os| self.nodes.iter().all(|node| node.os.0 != *os));
            (0, unused.unwrap_or(0))
        });
        let known = self.nodes.iter().position(|node| node.os.0 == os);
        LogicalNode::from_index(known.unwrap_or_else(|| {
            self.nodes.push(Node {
                os: OsNode(os),
                memory_bytes: 0,
                pus: Vec::new(),
                object,
            });
            self.nodes.len() - 1
        }))
    }

    fn add_memory<'h>(
        &mut self,
        memory: &'h TopologyObject,
        at: u32,
        homes: &mut Vec<(LogicalNode, BitmapRef<'h, CpuSet>)>,
    ) {
        if memory.object_type() == ObjectType::NUMANode {
            let bytes = match memory.attributes() {
                Some(ObjectAttributes::NUMANode(node)) => node.local_memory().map_or(0, Into::into),
                _ => 0,
            };
            let node = LogicalNode::from_index(self.nodes.len());
            self.nodes.push(Node {
                os: OsNode(memory.os_index().unwrap_or(self.nodes.len()) as u32),
                memory_bytes: bytes,
                pus: Vec::new(),
                object: at,
            });
            homes.extend(memory.cpuset().map(|pus| (node, pus)));
        }
        // Memory-side caches are between the object and its NUMA node.
        for below in memory.memory_children() {
            self.add_memory(below, at, homes);
        }
    }
}

/// Converts an hwloc topology, as far as its PUs are `allowed`. Every normal object with PUs is kept, so that levels
/// have hwloc's names; objects with a single child have no effect, because only branching levels count.
pub(crate) fn convert(
    hwloc: &Hwloc,
    name: &str,
    allowed: Option<&Allowed>,
) -> Result<Topology, TopologyError> {
    let mut builder = Builder {
        objects: Vec::new(),
        pus: Vec::new(),
        nodes: Vec::new(),
        allowed,
    };
    builder.add(hwloc.root_object(), &Above::default());
    let Builder {
        objects,
        pus,
        nodes,
        ..
    } = builder;
    if pus.is_empty() {
        return Err(TopologyError::Empty {
            name: name.to_owned(),
        });
    }
    let node_matrix = matrix(hwloc, &nodes);
    let mut topology = Topology {
        name: name.to_owned(),
        objects,
        pus,
        nodes,
        node_matrix,
        hardware: None,
        this_machine: hwloc.is_this_system(),
        hosts: Vec::new(),
        network: None,
        links: crate::links::Links::default(),
    };
    topology.remove_objects_without_pus();
    topology.set_default_distances();
    Ok(topology)
}

/// The node x node latencies of the firmware (or XML). A node that hwloc does not have, because it may not be used, is
/// as far as the farthest.
fn matrix(hwloc: &Hwloc, nodes: &[Node]) -> Option<Vec<f64>> {
    let found = hwloc.distances_with_type(None, ObjectType::NUMANode).ok()?;
    let known: BTreeSet<u32> = hwloc
        .objects_with_type(ObjectType::NUMANode)
        .filter_map(|node| Some(node.os_index()? as u32))
        .collect();
    for distances in found {
        let order: Option<Vec<usize>> = distances
            .objects()
            .map(|object| {
                let os = object?.os_index()? as u32;
                nodes.iter().position(|node| node.os.0 == os)
            })
            .collect();
        let Some(order) = order else { continue };
        if order.len() != known.len() || order.len() < 2 {
            continue;
        }
        let values = distances.distances();
        let farthest = values.iter().copied().max().unwrap_or_default() as f64;
        let mut matrix = vec![farthest; nodes.len() * nodes.len()];
        for node in 0..nodes.len() {
            matrix[node * nodes.len() + node] = DEFAULT_SAME_NODE;
        }
        for (from, row) in values.chunks(order.len()).enumerate() {
            for (to, &value) in row.iter().enumerate() {
                matrix[order[from] * nodes.len() + order[to]] = value as f64;
            }
        }
        return Some(matrix);
    }
    None
}
