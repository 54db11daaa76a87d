//! The links of a cluster, and the routes between its hosts.
//!
//! Every link has two directions, which are links of their own here. Parallel links between the same two switches are
//! one link with the sum of their bandwidth: adaptive or hashed routing is taken to share them evenly.
//!
//! | network | routes |
//! |---|---|
//! | tree, switches, matrix | up to the lowest common switch, and down |
//! | dragonfly | one hop in the group of the sender, one between groups, one in the group of the receiver; the ends of a link between groups are spread evenly over the routers. Adaptive routing sends a share by way of all other groups |
//! | torus | dimension by dimension, each in the shorter direction, half of the load in each if both are equal |
//!
//! A matrix of distances has no links but those of its hosts.

use numaloc_topology::Topology;
use numaloc_topology::hostlist::HostListError;
use numaloc_topology::links::{LinkFigures, Routing};
use numaloc_topology::network::Network;

use crate::message::Way;

mod dragonfly;
mod torus;
mod tree;

use dragonfly::Dragonfly;
use torus::Torus;
use tree::Tree;

/// Most links (directions) that a network may have: 128 MiB of loads.
const MOST_LINKS: usize = 1 << 24;

/// Why a machine has no links to model.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FabricError {
    /// A machine without hosts.
    #[error("{machine} is one host, expected a cluster")]
    OneHost {
        /// Its name.
        machine: String,
    },
    /// More links than are modelled.
    #[error("a network of more than {MOST_LINKS} links")]
    TooLarge,
    /// A list of figures without one per level.
    #[error("links: {found} values of {field} for {levels} levels of links")]
    Levels {
        /// The list.
        field: &'static str,
        /// Its values.
        found: usize,
        /// Levels of links.
        levels: usize,
    },
    /// A link above a switch that the network does not have.
    #[error("links: an uplink of switch {switch}, which is not described")]
    NoSuchSwitch {
        /// Its name.
        switch: String,
    },
    /// A list of hosts or switches that cannot be read.
    #[error(transparent)]
    Names(#[from] HostListError),
}

/// Loads of all links of a fabric in bytes.
pub type Loads = Vec<f64>;

enum Shape {
    Tree(Tree),
    Dragonfly(Dragonfly),
    Torus(Torus),
}

/// A cluster's links.
pub struct Fabric {
    shape: Shape,
    /// By link, both directions separately.
    bytes_per_s: Vec<f64>,
    figures: LinkFigures,
    hosts: Vec<String>,
}

/// Values by level: stated ones, or one for all.
fn by_level(
    field: &'static str,
    stated: &[f64],
    default: impl Fn(usize) -> f64,
    levels: usize,
) -> Result<Vec<f64>, FabricError> {
    match stated.len() {
        0 => Ok((0..levels).map(default).collect()),
        found if found == levels => Ok(stated.to_vec()),
        found => Err(FabricError::Levels {
            field,
            found,
            levels,
        }),
    }
}

impl Fabric {
    /// The links of a cluster, by its network and its [`Links`](numaloc_topology::links::Links).
    ///
    /// # Errors
    /// [`FabricError`]: no cluster, more links than are modelled, lists of figures of another length.
    pub fn of(machine: &Topology) -> Result<Self, FabricError> {
        let hosts: Vec<String> = machine
            .hosts()
            .iter()
            .map(|(_, name)| name.clone())
            .collect();
        let Some(network) = machine.network() else {
            return Err(FabricError::OneHost {
                machine: machine.name().to_owned(),
            });
        };
        let links = machine.links();
        let figures = links.figures();
        let (shape, bytes_per_s) = match network {
            Network::Dragonfly {
                groups,
                routers,
                hosts: below,
                ..
            } => {
                let routing = links.routing.unwrap_or(Routing::Adaptive);
                let sizes = [*groups, *routers, *below];
                let (shape, speeds) = Dragonfly::of(sizes, hosts.len(), routing, links)?;
                (Shape::Dragonfly(shape), speeds)
            }
            Network::Torus { dims, .. } => {
                let (shape, speeds) = Torus::of(dims, hosts.len(), links)?;
                (Shape::Torus(shape), speeds)
            }
            Network::Tree {
                arities,
                latency_ns,
                bandwidth_bytes_per_s,
                ..
            } => {
                let latency_s: Vec<f64> = latency_ns.iter().map(|ns| ns * 1e-9).collect();
                let speeds = bandwidth_bytes_per_s;
                let (shape, speeds) = Tree::even(arities, hosts.len(), latency_s, speeds, links)?;
                (Shape::Tree(shape), speeds)
            }
            Network::Switches { switches } => {
                let (shape, speeds) = Tree::named(switches, &hosts, links)?;
                (Shape::Tree(shape), speeds)
            }
            // Networks that this crate does not know have the links of their hosts at least.
            _ => {
                let (shape, speeds) =
                    Tree::even(&[hosts.len()], hosts.len(), Vec::new(), &[], links)?;
                (Shape::Tree(shape), speeds)
            }
        };
        Ok(Self {
            shape,
            bytes_per_s,
            figures,
            hosts,
        })
    }

    /// Number of hosts.
    #[must_use]
    pub fn hosts(&self) -> usize {
        self.hosts.len()
    }

    /// Bytes per second of every link; each direction is one.
    #[must_use]
    pub fn bytes_per_s(&self) -> &[f64] {
        &self.bytes_per_s
    }

    /// No load on any link.
    #[must_use]
    pub fn unloaded(&self) -> Loads {
        vec![0.0; self.bytes_per_s.len()]
    }

    /// What LogGP knows of the way between two hosts; of one host, between ranks whose distance is `distance` (10 in a
    /// NUMA node), which the time of the first byte is in proportion to.
    #[must_use]
    pub fn way(&self, from: usize, to: usize, distance: f64) -> Way {
        let figures = &self.figures;
        if from == to {
            return Way {
                overhead_s: 0.0,
                latency_s: figures.shared_latency_s * (distance / 10.0).max(1.0),
                bytes_per_s: figures.shared_bytes_per_s,
            };
        }
        let hops = match &self.shape {
            Shape::Tree(tree) => match tree.latency_s(from, to) {
                Some(stated) => {
                    return self.over(from, to, stated);
                }
                None => tree.further_switches(from, to),
            },
            Shape::Dragonfly(dragonfly) => dragonfly.further_switches(from, to),
            Shape::Torus(torus) => torus.further_switches(from, to),
        };
        let latency_s = figures.latency_s + figures.hop_s * hops as f64;
        self.over(from, to, latency_s)
    }

    fn over(&self, from: usize, to: usize, latency_s: f64) -> Way {
        let mut bytes_per_s = f64::INFINITY;
        self.each_link(from, to, 1.0, |link, _| {
            bytes_per_s = bytes_per_s.min(self.bytes_per_s[link]);
        });
        Way {
            overhead_s: self.figures.overhead_s,
            latency_s,
            bytes_per_s,
        }
    }

    /// Calls `on` with every link of the route between two hosts and the share of the bytes that it carries. `direct`:
    /// share of the messages of a dragonfly that take the direct link of two groups.
    pub fn each_link(&self, from: usize, to: usize, direct: f64, mut on: impl FnMut(usize, f64)) {
        if from == to {
            return;
        }
        match &self.shape {
            Shape::Tree(tree) => tree.each_link(from, to, |link| on(link, 1.0)),
            Shape::Dragonfly(dragonfly) => dragonfly.each_link(from, to, direct, &mut on),
            Shape::Torus(torus) => torus.each_link(from, to, &mut on),
        }
    }

    /// Adds bytes from one host to another to the loads of the links between them.
    pub fn carry(&self, from: usize, to: usize, bytes: f64, direct: f64, loads: &mut Loads) {
        self.each_link(from, to, direct, |link, share| loads[link] += bytes * share);
    }

    /// Whether messages may take other ways than the direct one.
    #[must_use]
    pub fn is_adaptive(&self) -> bool {
        matches!(&self.shape, Shape::Dragonfly(dragonfly) if dragonfly.is_adaptive())
    }

    /// A link's name for users.
    #[must_use]
    pub fn name(&self, link: usize) -> String {
        match &self.shape {
            Shape::Tree(tree) => tree.name(link, &self.hosts),
            Shape::Dragonfly(dragonfly) => dragonfly.name(link, &self.hosts),
            Shape::Torus(torus) => torus.name(link, &self.hosts),
        }
    }
}
