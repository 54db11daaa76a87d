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
use crate::network::{Network, ONE_SWITCH, PER_LEVEL};
use crate::tree::{Node, Object, ObjectKind, Pu, Topology};
use numaloc_model::{LogicalNode, LogicalPu};

/// Idle memory latency assumed for hosts that state none, for converting latencies to distances.
const MEMORY_LATENCY_NS: f64 = 100.0;
/// Largest nodes x nodes table: 4,096 nodes are 128 MiB.
const TABLE_LIMIT: usize = 4096;

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
}

impl ClusterFile {
    /// The file's text.
    ///
    /// # Errors
    /// The serialiser's message; none is known for values that can be constructed.
    pub fn to_toml(&self) -> Result<String, String> {
        toml::to_string_pretty(self).map_err(|error| error.to_string())
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
        let fail = |why: String| TopologyError::Description {
            path: path.to_owned(),
            why,
        };
        let mut machines = Vec::new();
        let mut hosts = Vec::new();
        for group in &self.cluster.hosts {
            let at = machines.len();
            machines.push(resolve(&group.machine)?);
            let names = hostlist::expand(&group.names).map_err(fail)?;
            hosts.extend(names.into_iter().map(|name| (name, at)));
        }
        let hosts: Vec<_> = hosts
            .into_iter()
            .map(|(name, at)| (name, &machines[at]))
            .collect();
        compose(&self.name, &hosts, self.cluster.network.as_ref()).map_err(fail)
    }
}

/// Connects hosts by a network; `None`: one switch for all.
///
/// # Errors
/// A message that states the inconsistency: no hosts, a name used twice, a network of another size.
pub fn compose(
    name: &str,
    hosts: &[(String, &Topology)],
    network: Option<&Network>,
) -> Result<Topology, String> {
    if hosts.is_empty() {
        return Err("a cluster without hosts".to_owned());
    }
    let mut names: Vec<&str> = hosts.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(format!("host {} is named twice", twice[0]));
    }
    let one_switch = Network::Tree {
        arities: vec![hosts.len()],
        distances: Vec::new(),
        latency_ns: Vec::new(),
        bandwidth_bytes_per_s: Vec::new(),
    };
    let network = network.unwrap_or(&one_switch);
    let shape = Shape::of(network, hosts)?;
    let mut builder = Builder {
        hosts,
        objects: Vec::new(),
        pus: Vec::new(),
        nodes: Vec::new(),
        named: Vec::new(),
    };
    let mut next = 0;
    builder.switch(&shape, 0, None, &mut next);
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
    })
}

/// Largest distance, latency in ns or bandwidth in bytes per second: far above all networks, and far below the point
/// where sums of products with amounts of communication lose precision.
const MAX_FIGURE: f64 = 1e15;

/// Checks figures of a network for plausibility; `field` names their place.
fn check(field: &str, values: &[f64]) -> Result<(), String> {
    match values.iter().position(|v| !(0.0..=MAX_FIGURE).contains(v)) {
        Some(at) => Err(format!(
            "{field} has {} as number {} of {}, expected 0 to {MAX_FIGURE:e}",
            values[at],
            at + 1,
            values.len()
        )),
        None => Ok(()),
    }
}

/// The network as levels of switches, or as a matrix.
struct Shape {
    arities: Vec<usize>,
    distances: Vec<f64>,
    /// Hosts x hosts, if levels do not determine the distances.
    matrix: Option<Vec<f64>>,
}

impl Shape {
    fn of(network: &Network, hosts: &[(String, &Topology)]) -> Result<Self, String> {
        let count = hosts.len();
        let shape = match network {
            Network::Tree {
                arities,
                distances,
                latency_ns,
                bandwidth_bytes_per_s,
            } => {
                for (what, values) in [
                    ("distances", distances),
                    ("latency_ns", latency_ns),
                    ("bandwidth_bytes_per_s", bandwidth_bytes_per_s),
                ] {
                    if !values.is_empty() && values.len() != arities.len() {
                        return Err(format!(
                            "{} {what} for {} levels of switches",
                            values.len(),
                            arities.len()
                        ));
                    }
                    check(what, values)?;
                }
                let memory_ns = hosts[0]
                    .1
                    .hardware()
                    .map_or(MEMORY_LATENCY_NS, |h| h.memory_latency_ns);
                let distances = if !distances.is_empty() {
                    distances.clone()
                } else if !latency_ns.is_empty() {
                    latency_ns.iter().map(|ns| 10.0 * ns / memory_ns).collect()
                } else {
                    default_distances(arities.len())
                };
                Self {
                    arities: arities.clone(),
                    distances,
                    matrix: None,
                }
            }
            Network::Dragonfly {
                groups,
                routers,
                hosts,
                distances,
            } => {
                let arities = vec![*groups, *routers, *hosts];
                if !distances.is_empty() && distances.len() != 3 {
                    return Err(format!(
                        "{} distances, expected 3 (groups, routers, hosts)",
                        distances.len()
                    ));
                }
                check("distances", distances)?;
                let distances = if distances.is_empty() {
                    default_distances(3)
                } else {
                    distances.clone()
                };
                Self {
                    arities,
                    distances,
                    matrix: None,
                }
            }
            Network::Torus {
                dims,
                first_hop,
                per_hop,
            } => {
                let at = |mut host: usize| {
                    let mut place = vec![0; dims.len()];
                    for (d, &length) in dims.iter().enumerate().rev() {
                        place[d] = host % length.max(1);
                        host /= length.max(1);
                    }
                    place
                };
                let size = dims
                    .iter()
                    .try_fold(1_usize, |size, &length| size.checked_mul(length));
                if dims.contains(&0) || size.is_none_or(|size| size < count) {
                    return Err(format!("a torus of {dims:?} has no room for {count} hosts"));
                }
                if count > TABLE_LIMIT {
                    return Err(format!(
                        "a torus of {count} hosts, expected at most {TABLE_LIMIT}; describe it as a tree"
                    ));
                }
                for (what, value) in [("first_hop", *first_hop), ("per_hop", *per_hop)] {
                    check(what, &[value])?;
                }
                let matrix = matrix_of(count, |a, b| {
                    let (a, b) = (at(a), at(b));
                    let along = a.iter().zip(&b).zip(dims);
                    let hops: usize = along
                        .map(|((&a, &b), &length)| a.abs_diff(b).min(length - a.abs_diff(b)))
                        .sum();
                    if hops == 0 {
                        0.0
                    } else {
                        first_hop + per_hop * (hops - 1) as f64
                    }
                });
                Self {
                    arities: vec![count],
                    distances: vec![*first_hop],
                    matrix: Some(matrix),
                }
            }
            Network::Matrix { distances } => {
                check("distances", distances)?;
                if distances.len() != count * count {
                    return Err(format!(
                        "{} distances for {count} hosts, expected {}",
                        distances.len(),
                        count * count
                    ));
                }
                Self {
                    arities: vec![count],
                    distances: vec![ONE_SWITCH],
                    matrix: Some(distances.clone()),
                }
            }
        };
        // Sums of hops, and latencies relative to the memory's.
        check("the network", &shape.distances)?;
        check("the network", shape.matrix.as_deref().unwrap_or(&[]))?;
        let room = shape
            .arities
            .iter()
            .try_fold(1_usize, |room, &arity| room.checked_mul(arity));
        if shape.arities.is_empty()
            || shape.arities.contains(&0)
            || room.is_none_or(|room| room < count)
        {
            return Err(format!(
                "switches {:?} have no room for {count} hosts",
                shape.arities
            ));
        }
        Ok(shape)
    }
}

fn default_distances(levels: usize) -> Vec<f64> {
    (0..levels)
        .map(|level| ONE_SWITCH + PER_LEVEL * (levels - 1 - level) as f64)
        .collect()
}

fn matrix_of(count: usize, distance: impl Fn(usize, usize) -> f64) -> Vec<f64> {
    (0..count * count)
        .map(|at| distance(at / count, at % count))
        .collect()
}

struct Builder<'a> {
    hosts: &'a [(String, &'a Topology)],
    objects: Vec<Object>,
    pus: Vec<Pu>,
    nodes: Vec<Node>,
    named: Vec<(u32, String)>,
}

impl Builder<'_> {
    /// Adds the switch at `level` and fills it with the hosts from `next` on.
    fn switch(
        &mut self,
        shape: &Shape,
        level: usize,
        parent: Option<u32>,
        next: &mut usize,
    ) -> u32 {
        let at = self.objects.len() as u32;
        let start = self.pus.len() as u32;
        self.objects.push(Object {
            kind: if level == 0 {
                ObjectKind::Machine
            } else {
                ObjectKind::Switch
            },
            parent,
            children: Vec::new(),
            pus: start..start,
            depth: level as u32,
            cache_bytes: None,
            distance: shape.distances[level],
        });
        let mut children = Vec::new();
        for _ in 0..shape.arities[level] {
            if *next == self.hosts.len() {
                break;
            }
            children.push(if level + 1 < shape.arities.len() {
                self.switch(shape, level + 1, Some(at), next)
            } else {
                let host = self.host(*next, level as u32 + 1, at);
                *next += 1;
                host
            });
        }
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
) -> Result<Option<Vec<f64>>, String> {
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
        return Err(format!(
            "{} NUMA nodes under a torus or matrix network, expected at most {TABLE_LIMIT}; describe it as a tree",
            nodes.len()
        ));
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
mod tests {
    use super::*;
    use crate::resolve;

    fn tree(arities: &[usize]) -> Network {
        Network::Tree {
            arities: arities.to_vec(),
            distances: Vec::new(),
            latency_ns: Vec::new(),
            bandwidth_bytes_per_s: Vec::new(),
        }
    }

    fn cluster(
        hosts: usize,
        machine: &str,
        network: Option<Network>,
    ) -> Result<Topology, TopologyError> {
        ClusterFile {
            name: "test".into(),
            description: String::new(),
            cluster: Cluster {
                hosts: vec![HostGroup {
                    names: format!("n[0-{}]", hosts - 1),
                    machine: machine.into(),
                }],
                network,
            },
        }
        .build("test.toml", crate::resolve)
    }

    #[test]
    fn levels_determine_the_distance_of_hosts() {
        // 2 switches of 2 hosts of 2 nodes of 2 cores: 16 PUs, 4 per host.
        let t = cluster(4, "numa:2 core:2 pu:1", Some(tree(&[2, 2]))).unwrap();
        assert_eq!(
            (t.pus().len(), t.nodes().len(), t.hosts().len()),
            (16, 8, 4)
        );
        let d = |a, b| t.distance(LogicalPu(a), LogicalPu(b));
        // Same node, other node of the host, other host of the switch, other switch.
        assert_eq!(
            [d(0, 1), d(0, 2), d(0, 4), d(0, 8)],
            [10.0, 20.0, 100.0, 150.0]
        );
        assert_eq!(t.host_name(t.hosts()[3].0), Some("n3"));
        assert_eq!(t.pus()[13].os.0, 1, "OS indexes are the host's");
        let starts: Vec<_> = t
            .hosts()
            .iter()
            .map(|(at, _)| t.objects()[*at as usize].pus.start)
            .collect();
        assert_eq!(starts, [0, 4, 8, 12]);
        assert!(t.node_matrix().is_none());
    }

    #[test]
    fn latencies_are_converted_to_distances() {
        // purple's memory latency is 95 ns: 950 ns is distance 100, 1900 ns is 200; its own nodes have distance 21.
        let network = Network::Tree {
            arities: vec![2, 1],
            distances: Vec::new(),
            latency_ns: vec![1900.0, 950.0],
            bandwidth_bytes_per_s: vec![25e9, 12.5e9],
        };
        let t = cluster(2, "purple", Some(network)).unwrap();
        let d = |a, b| t.distance(LogicalPu(a), LogicalPu(b));
        assert_eq!([d(0, 28), d(0, 56)], [21.0, 200.0]);
    }

    #[test]
    fn a_torus_uses_the_shorter_way_round() {
        let torus = Network::Torus {
            dims: vec![2, 4],
            first_hop: 100.0,
            per_hop: 40.0,
        };
        let t = cluster(8, "core:1 pu:1", Some(torus)).unwrap();
        let d = |a, b| t.distance(LogicalPu(a), LogicalPu(b));
        // Host 0 = (0,0): 1 = (0,1) is one hop away, 3 = (0,3) one hop backwards, 2 two hops, 6 = (1,2) three.
        assert_eq!(
            [d(0, 1), d(0, 3), d(0, 2), d(0, 6)],
            [100.0, 100.0, 140.0, 180.0]
        );
    }

    #[test]
    fn hosts_may_differ_and_the_last_switch_may_be_partly_filled() {
        let file = r#"
            name = "mixed"
            description = "two kinds of hosts"
            [cluster]
            network = { kind = "tree", arities = [2, 2] }
            [[cluster.hosts]]
            names = "big[1-2]"
            machine = "numa:2 core:4 pu:1"
            [[cluster.hosts]]
            names = "small"
            machine = "core:2 pu:1"
        "#;
        let file: ClusterFile = toml::from_str(file).unwrap();
        let t = file.build("mixed.toml", crate::resolve).unwrap();
        assert_eq!((t.pus().len(), t.hosts().len()), (18, 3));
        assert_eq!(t.distance(LogicalPu(0), LogicalPu(17)), 150.0);
        assert_eq!(
            toml::from_str::<ClusterFile>(&file.to_toml().unwrap()).unwrap(),
            file
        );
    }

    #[test]
    fn uneven_hosts_keep_their_own_distances() {
        // A host with unequal distances between its nodes: the built-in opteron-6386.
        let host = resolve("opteron-6386").unwrap();
        let t = cluster(2, "opteron-6386", None).unwrap();
        let nodes = host.nodes().len();
        for a in 0..nodes {
            for b in 0..nodes {
                let (x, y) = (LogicalNode::from_index(a), LogicalNode::from_index(b));
                let (u, v) = (
                    LogicalNode::from_index(a + nodes),
                    LogicalNode::from_index(b + nodes),
                );
                assert_eq!(t.node_distance(u, v), host.node_distance(x, y));
                assert_eq!(t.node_distance(x, v), 100.0);
            }
        }
    }

    #[test]
    fn implausible_figures_are_refused_with_their_place() {
        let refused = |network: &str| {
            let text = format!(
                "name = \"x\"\ndescription = \"x\"\n[cluster]\nhosts = [{{ names = \"n[0-3]\", machine = \"core:1 pu:1\" }}]\n\
                 network = {{ {network} }}\n"
            );
            let file: ClusterFile = toml::from_str(&text).unwrap();
            file.build("test.toml", crate::resolve)
                .unwrap_err()
                .to_string()
        };
        for value in ["-1.0", "nan", "inf", "1e300"] {
            for field in ["distances", "latency_ns", "bandwidth_bytes_per_s"] {
                let error = refused(&format!(
                    "kind = \"tree\", arities = [2, 2], {field} = [1.0, {value}]"
                ));
                let place = format!("{field} has ");
                assert!(
                    error.contains("test.toml")
                        && error.contains(&place)
                        && error.contains("number 2 of 2"),
                    "{error}"
                );
            }
            let torus = |rest: &str| format!("kind = \"torus\", dims = [2, 2], {rest}");
            for (network, field) in [
                (
                    format!(
                        "kind = \"dragonfly\", groups = 1, routers = 2, hosts = 2, distances = [1.0, {value}, 1.0]"
                    ),
                    "distances",
                ),
                (torus(&format!("first_hop = {value}")), "first_hop"),
                (torus(&format!("per_hop = {value}")), "per_hop"),
                (
                    format!(
                        "kind = \"matrix\", distances = [{}{value}]",
                        "1.0, ".repeat(15)
                    ),
                    "distances",
                ),
            ] {
                let error = refused(&network);
                assert!(error.contains(field), "{network}: {error}");
            }
        }
        // 2^64 hosts overflow to 0 in 64 bits.
        let error = refused("kind = \"torus\", dims = [4294967296, 4294967296]");
        assert!(error.contains("no room"), "{error}");
        let error = refused("kind = \"torus\", dims = [0, 4]");
        assert!(error.contains("no room"), "{error}");
    }

    #[test]
    fn errors_of_inconsistent_clusters_are_one_line() {
        for network in [
            tree(&[2]),
            tree(&[]),
            tree(&[0, 9]),
            Network::Torus {
                dims: vec![3],
                first_hop: 1.0,
                per_hop: 1.0,
            },
            Network::Matrix {
                distances: vec![1.0; 9],
            },
            Network::Dragonfly {
                groups: 2,
                routers: 1,
                hosts: 1,
                distances: vec![],
            },
            Network::Dragonfly {
                groups: 2,
                routers: 2,
                hosts: 2,
                distances: vec![1.0],
            },
        ] {
            let error = cluster(4, "core:1 pu:1", Some(network))
                .unwrap_err()
                .to_string();
            assert!(
                !error.contains('\n') && error.contains("test.toml"),
                "{error}"
            );
        }
        let twice = ["a", "a"].map(|name| (name.to_owned(), resolve("core:1 pu:1").unwrap()));
        let twice: Vec<_> = twice
            .iter()
            .map(|(name, machine)| (name.clone(), machine))
            .collect();
        assert!(compose("x", &twice, None).unwrap_err().contains("twice"));
    }
}
