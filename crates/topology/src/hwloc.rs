//! Converts hwloc's object tree to a [`Topology`].

use hwlocality::Topology as Hwloc;
use hwlocality::object::TopologyObject;
use hwlocality::object::attributes::ObjectAttributes;
use hwlocality::object::types::ObjectType;
use numaloc_model::{LogicalNode, LogicalPu, OsNode, OsPu};

use crate::error::TopologyError;
use crate::tree::{Node, Object, ObjectKind, Pu, Topology};

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

struct Builder {
    objects: Vec<Object>,
    pus: Vec<Pu>,
    nodes: Vec<Node>,
}

impl Builder {
    /// Adds `object` and everything below it; `home` and `core` are those of the nearest ancestor.
    fn add(
        &mut self,
        object: &TopologyObject,
        parent: Option<u32>,
        mut home: Option<LogicalNode>,
        mut core: Option<u32>,
    ) -> u32 {
        let kind = kind_of(object);
        let at = self.objects.len() as u32;
        let cache_bytes = match object.attributes() {
            Some(ObjectAttributes::Cache(cache)) => cache.size().map(Into::into),
            _ => None,
        };
        self.objects.push(Object {
            kind,
            parent,
            children: Vec::new(),
            pus: self.pus.len() as u32..self.pus.len() as u32,
            depth: parent.map_or(0, |p| self.objects[p as usize].depth + 1),
            cache_bytes,
            distance: 0.0,
        });
        // The first memory child is home; further ones (HBM, CXL) become nodes without PUs.
        let mut own_home = None;
        for memory in object.memory_children() {
            self.add_memory(memory, at, &mut own_home);
        }
        home = own_home.or(home);
        if kind == ObjectKind::Core {
            core = Some(at);
        }
        if kind == ObjectKind::Pu {
            self.pus.push(Pu {
                os: OsPu(object.os_index().unwrap_or(self.pus.len()) as u32),
                core: core.unwrap_or(at),
                // `convert` assigns a PU that has no NUMA node above it to node 0.
                node: home.unwrap_or(LogicalNode(u32::MAX)),
                object: at,
            });
        }
        let mut children = Vec::new();
        for child in object.normal_children() {
            children.push(self.add(child, Some(at), home, core));
        }
        let end = self.pus.len() as u32;
        let this = &mut self.objects[at as usize];
        this.children = children;
        this.pus.end = end;
        at
    }

    fn add_memory(&mut self, memory: &TopologyObject, at: u32, home: &mut Option<LogicalNode>) {
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
            home.get_or_insert(node);
        }
        // Memory-side caches are between the object and its NUMA node.
        for below in memory.memory_children() {
            self.add_memory(below, at, home);
        }
    }
}

/// Converts an hwloc topology. Every normal object is kept, so that levels have hwloc's
/// names; objects with a single child have no effect, because only branching levels count.
pub(crate) fn convert(hwloc: &Hwloc, name: &str) -> Result<Topology, TopologyError> {
    let mut builder = Builder {
        objects: Vec::new(),
        pus: Vec::new(),
        nodes: Vec::new(),
    };
    builder.add(hwloc.root_object(), None, None, None);
    let Builder {
        objects,
        mut pus,
        mut nodes,
    } = builder;
    if pus.is_empty() {
        return Err(TopologyError::Empty {
            name: name.to_owned(),
        });
    }
    for pu in &mut pus {
        if pu.node.0 == u32::MAX {
            pu.node = LogicalNode(0);
        }
    }
    for (at, pu) in pus.iter().enumerate() {
        nodes[pu.node.index()].pus.push(LogicalPu::from_index(at));
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
    };
    topology.set_default_distances();
    Ok(topology)
}

/// The node x node latencies of the firmware (or XML), if they cover all nodes.
fn matrix(hwloc: &Hwloc, nodes: &[Node]) -> Option<Vec<f64>> {
    let found = hwloc.distances_with_type(None, ObjectType::NUMANode).ok()?;
    for distances in found {
        let order: Option<Vec<usize>> = distances
            .objects()
            .map(|object| {
                let os = object?.os_index()? as u32;
                nodes.iter().position(|node| node.os.0 == os)
            })
            .collect();
        let Some(order) = order else { continue };
        if order.len() != nodes.len() || nodes.len() < 2 {
            continue;
        }
        let mut matrix = vec![0.0; nodes.len() * nodes.len()];
        for (from, row) in distances.distances().chunks(order.len()).enumerate() {
            for (to, &value) in row.iter().enumerate() {
                matrix[order[from] * nodes.len() + order[to]] = value as f64;
            }
        }
        return Some(matrix);
    }
    None
}
