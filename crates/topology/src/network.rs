//! How the hosts of a cluster are joined, as machine files say it.

use serde::{Deserialize, Serialize};

/// Distance of two hosts under one switch, where nothing is said.
pub(crate) const ONE_SWITCH: f64 = 100.0;
/// What each level of switches above adds to it.
pub(crate) const PER_LEVEL: f64 = 50.0;

/// How the hosts of a cluster are joined.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Network {
    /// Switches above switches (fat-tree). `arities` root first, the last one is hosts per switch.
    Tree {
        /// Children of a switch, by level.
        arities: Vec<usize>,
        /// Distance of two PUs that part at this level, by level.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        distances: Vec<f64>,
        /// Latency between hosts that part at this level, by level.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        latency_ns: Vec<f64>,
        /// Bandwidth of a link of this level in bytes per second, by level.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        bandwidth_bytes_per_s: Vec<f64>,
    },
    /// Groups of routers, all groups joined to each other: a tree of three levels.
    Dragonfly {
        /// Groups.
        groups: usize,
        /// Routers of a group.
        routers: usize,
        /// Hosts of a router.
        hosts: usize,
        /// Distances between groups, within a group, at one router.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        distances: Vec<f64>,
    },
    /// A torus; hosts in row-major order. Distance: `first_hop` and `per_hop` for each further one.
    Torus {
        /// Hosts along each dimension.
        dims: Vec<usize>,
        /// Distance of neighbours.
        #[serde(default = "one_switch")]
        first_hop: f64,
        /// What each further hop adds.
        #[serde(default = "per_level")]
        per_hop: f64,
    },
    /// Distances of hosts, row after row.
    Matrix {
        /// Hosts x hosts.
        distances: Vec<f64>,
    },
}

fn one_switch() -> f64 {
    ONE_SWITCH
}

fn per_level() -> f64 {
    PER_LEVEL
}
