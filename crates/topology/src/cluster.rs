//! Clusters: NUMA machines connected by a network, as one tree.
//!
//! The root is the cluster; below it are switches, then hosts, then the tree of each host. PUs and NUMA nodes are
//! numbered consecutively over all hosts; OS indexes stay those of their host. A tree of switches (fat-tree,
//! dragonfly) needs no table: the level of the lowest common switch determines the distance of two hosts. A torus, a
//! network given as a matrix, and hosts with unequal distances between their nodes get a table of nodes x nodes.
//!
//! Distances are relative to local memory at 10. They come, in this order, from `distances`, from
//! `latency_ns` (10 x latency / the host's memory latency, 100 ns if unknown), or from the defaults:
//! 100 for one switch, 50 more for each level above.

use serde::{Deserialize, Serialize};

use crate::error::TopologyError;
use crate::hostlist;
use crate::links::Links;
use crate::network::Network;
use crate::tree::{Node, Object, ObjectKind, Pu, Topology};
use numaloc_model::{LogicalNode, LogicalPu};

mod branch;
mod error;
mod limits;
mod shape;
mod switches;

pub(crate) use branch::default_distance;
use branch::{Below, Branch};
pub use error::ClusterError;
use limits::TABLE_LIMIT;
use shape::{Shape, matrix_of};

/// A group of equal hosts.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HostGroup {
    /// Host list in Slurm's notation: `n[001-128],m7`.
    pub names: String,
    /// The machine of each host, as for `--machine`: hwloc XML, described machine, synthetic string.
    pub machine: String,
}

/// A cluster file.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterFile {
    /// Name.
    pub name: String,
    /// Description of the cluster, with the source of its numbers.
    pub description: String,
    /// Hosts and network.
    pub cluster: Cluster,
}

/// Hosts and network.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// Hosts, in the order in which they fill the network.
    pub hosts: Vec<HostGroup>,
    /// The network; by default one switch for all hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// What its links can do, for the time of messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub links: Option<Links>,
}

impl ClusterFile {
    /// The file's text.
    ///
    /// # Errors
    /// The serialiser's; none is known for values that can be constructed.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string_pretty(self)
    }

    /// Reads every host's machine with `resolve` and composes the cluster.
    ///
    /// # Errors
    /// [`TopologyError::Description`] with `path` and the inconsistency; errors of a host's machine are passed
    /// on.
    pub(crate) fn build(
        &self,
        path: &str,
        resolve: impl Fn(&str) -> Result<Topology, TopologyError>,
    ) -> Result<Topology, TopologyError> {
        let fail = |why: ClusterError| TopologyError::Description {
            path: path.to_owned(),
            why: why.to_string(),
        };
        let mut machines = Vec::new();
        let mut hosts = Vec::new();
        for group in &self.cluster.hosts {
            let at = machines.len();
            machines.push(resolve(&group.machine)?);
            let names = hostlist::expand(&group.names).map_err(|why| fail(why.into()))?;
            hosts.extend(names.into_iter().map(|name| (name, at)));
        }
        let hosts: Vec<_> = hosts
            .into_iter()
            .map(|(name, at)| (name, &machines[at]))
            .collect();
        let links = self.cluster.links.clone().unwrap_or_default();
        links.check().map_err(|why| fail(why.into()))?;
        let built = compose(&self.name, &hosts, self.cluster.network.as_ref()).map_err(fail)?;
        Ok(built.with_links(links))
    }
}

/// Connects hosts by a network; `None`: one switch for all.
///
/// # Errors
/// [`ClusterError`]: no hosts, a name used twice, a network of another size.
pub fn compose(
    name: &str,
    hosts: &[(String, &Topology)],
    network: Option<&Network>,
) -> Result<Topology, ClusterError> {
    if hosts.is_empty() {
        return Err(ClusterError::NoHosts);
    }
    let mut names: Vec<&str> = hosts.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(ClusterError::NamedTwice {
            host: twice[0].to_owned(),
        });
    }
    let one_switch = Network::Tree {
        arities: vec![hosts.len()],
        distances: Vec::new(),
        latency_ns: Vec::new(),
        bandwidth_bytes_per_s: Vec::new(),
    };
    let network = network.unwrap_or(&one_switch);
    let shape = Shape::of(network, hosts)?;
    // Tables of distances have the given order, which trees of switches by name may change.
    let order = shape.root.hosts().into_iter();
    let ordered: Vec<(String, &Topology)> = order.map(|host| hosts[host].clone()).collect();
    let hosts = &ordered[..];
    let mut builder = Builder {
        hosts,
        objects: Vec::new(),
        pus: Vec::new(),
        nodes: Vec::new(),
        named: Vec::new(),
    };
    builder.switch(&shape.root, 0, None);
    let Builder {
        objects,
        pus,
        nodes,
        named,
        ..
    } = builder;
    let node_matrix = node_matrix(hosts, &nodes, &shape, &objects, &named)?;
    Ok(Topology {
        name: name.to_owned(),
        objects,
        pus,
        nodes,
        node_matrix,
        hardware: None,
        this_machine: false,
        hosts: named,
        network: Some(network.clone()),
        links: Links::default(),
    })
}

struct Builder<'a> {
    hosts: &'a [(String, &'a Topology)],
    objects: Vec<Object>,
    pus: Vec<Pu>,
    nodes: Vec<Node>,
    named: Vec<(u32, String)>,
}

impl Builder<'_> {
    /// Adds a switch, which has `depth` switches above it, with all that is below it.
    fn switch(&mut self, branch: &Branch, depth: u32, parent: Option<u32>) -> u32 {
        let at = self.objects.len() as u32;
        let start = self.pus.len() as u32;
        self.objects.push(Object {
            kind: if depth == 0 {
                ObjectKind::Machine
            } else {
                ObjectKind::Switch
            },
            parent,
            children: Vec::new(),
            pus: start..start,
            depth,
            cache_bytes: None,
            distance: branch.distance,
        });
        let children = branch.below.iter().map(|below| match below {
            Below::Switch(branch) => self.switch(branch, depth + 1, Some(at)),
            Below::Host(_) => self.host(self.named.len(), depth + 1, at),
        });
        let children = children.collect();
        let end = self.pus.len() as u32;
        let this = &mut self.objects[at as usize];
        this.children = children;
        this.pus.end = end;
        at
    }

    /// Adds a host: its objects, PUs and nodes, with new numbers.
    fn host(&mut self, host: usize, depth: u32, parent: u32) -> u32 {
        let (name, machine) = &self.hosts[host];
        let (object0, pu0, node0) = (
            self.objects.len() as u32,
            self.pus.len() as u32,
            self.nodes.len() as u32,
        );
        for (at, object) in machine.objects().iter().enumerate() {
            let mut object = object.clone();
            object.parent = if at == 0 {
                Some(parent)
            } else {
                object.parent.map(|p| p + object0)
            };
            object
                .children
                .iter_mut()
                .for_each(|child| *child += object0);
            object.pus = object.pus.start + pu0..object.pus.end + pu0;
            object.depth += depth;
            if at == 0 {
                object.kind = ObjectKind::Host;
                if let Some(far) = mean_remote(machine) {
                    object.distance = far;
                }
            }
            self.objects.push(object);
        }
        for pu in machine.pus() {
            let node = LogicalNode(pu.node.0 + node0);
            self.pus.push(Pu {
                os: pu.os,
                core: pu.core + object0,
                node,
                object: pu.object + object0,
            });
        }
        for node in machine.nodes() {
            let mut node = node.clone();
            node.pus
                .iter_mut()
                .for_each(|pu| *pu = LogicalPu(pu.0 + pu0));
            node.object += object0;
            self.nodes.push(node);
        }
        self.named.push((object0, name.clone()));
        object0
    }
}

/// Mean distance of two different nodes of a host that has a matrix.
fn mean_remote(machine: &Topology) -> Option<f64> {
    let matrix = machine.node_matrix()?;
    let nodes = machine.nodes().len();
    let remote: Vec<f64> = (0..nodes * nodes)
        .filter(|at| at / nodes != at % nodes)
        .map(|at| matrix[at])
        .collect();
    (!remote.is_empty()).then(|| remote.iter().sum::<f64>() / remote.len() as f64)
}

/// Nodes x nodes, if the tree alone does not determine the distances. In a cluster too large
/// for a table, hosts with unequal nodes use the mean of their own distances instead.
fn node_matrix(
    hosts: &[(String, &Topology)],
    nodes: &[Node],
    shape: &Shape,
    objects: &[Object],
    named: &[(u32, String)],
) -> Result<Option<Vec<f64>>, ClusterError> {
    let uneven = hosts.iter().any(|(_, machine)| {
        let far = mean_remote(machine);
        let count = machine.nodes().len();
        let matrix = machine.node_matrix().unwrap_or(&[]);
        (0..matrix.len()).any(|at| at / count != at % count && Some(matrix[at]) != far)
    });
    if shape.matrix.is_none() && (!uneven || nodes.len() > TABLE_LIMIT) {
        return Ok(None);
    }
    if nodes.len() > TABLE_LIMIT {
        return Err(ClusterError::TooManyNodes { nodes: nodes.len() });
    }
    let mut first = Vec::with_capacity(hosts.len());
    let mut host_of = Vec::with_capacity(nodes.len());
    for (at, (_, machine)) in hosts.iter().enumerate() {
        first.push(host_of.len());
        host_of.extend(std::iter::repeat_n(at, machine.nodes().len()));
    }
    let between = |a: usize, b: usize| match &shape.matrix {
        Some(matrix) => matrix[a * hosts.len() + b],
        None => {
            let (mut a, mut b) = (named[a].0, named[b].0);
            // All hosts have the same depth.
            while a != b {
                a = objects[a as usize].parent.unwrap_or(0);
                b = objects[b as usize].parent.unwrap_or(0);
            }
            objects[a as usize].distance
        }
    };
    let inside = |host: usize, a: usize, b: usize| {
        hosts[host]
            .1
            .node_distance(LogicalNode::from_index(a), LogicalNode::from_index(b))
    };
    Ok(Some(matrix_of(nodes.len(), |a, b| {
        let (ha, hb) = (host_of[a], host_of[b]);
        if ha == hb {
            inside(ha, a - first[ha], b - first[hb])
        } else {
            between(ha, hb)
        }
    })))
}

#[cfg(test)]
mod tests;
