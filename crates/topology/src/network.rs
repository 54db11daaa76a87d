//! The network between the hosts of a cluster, as described in machine files.

use serde::{Deserialize, Serialize};

/// Default distance of two hosts at one switch.
pub(crate) const ONE_SWITCH: f64 = 100.0;
/// Default addition for each level of switches above.
pub(crate) const PER_LEVEL: f64 = 50.0;

/// The network between the hosts of a cluster.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Network {
    /// A tree of switches (fat-tree). `arities` starts at the root; the last one is the number of hosts per switch.
    Tree {
        /// Children of a switch, by level.
        arities: Vec<usize>,
        /// Distance of two PUs whose paths separate at this level, by level.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        distances: Vec<f64>,
        /// Latency between hosts whose paths separate at this level, by level.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        latency_ns: Vec<f64>,
        /// Bandwidth of a link of this level in bytes per second, by level.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        bandwidth_bytes_per_s: Vec<f64>,
    },
    /// Groups of routers, with links between all groups: a tree of three levels.
    Dragonfly {
        /// Number of groups.
        groups: usize,
        /// Routers per group.
        routers: usize,
        /// Hosts per router.
        hosts: usize,
        /// Distances between groups, within a group, and at one router.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        distances: Vec<f64>,
    },
    /// A torus; hosts in row-major order. Distance: `first_hop`, plus `per_hop` for each further hop.
    Torus {
        /// Hosts along each dimension.
        dims: Vec<usize>,
        /// Distance of neighbouring hosts.
        #[serde(default = "one_switch")]
        first_hop: f64,
        /// Additional distance for each further hop.
        #[serde(default = "per_level")]
        per_hop: f64,
    },
    /// Switches by name: a tree of any form. What no switch is above of is under one root.
    Switches {
        /// In the order in which their hosts are numbered.
        switches: Vec<Switch>,
    },
    /// Distances of hosts, row after row.
    Matrix {
        /// Hosts x hosts.
        distances: Vec<f64>,
    },
}

/// A switch, and what is connected to it from below.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Switch {
    /// Its name.
    pub name: String,
    /// Its hosts, as a host list; those that the cluster does not have are ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<String>,
    /// The switches below it, as a list in the same notation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switches: Option<String>,
    /// Distance of two hosts whose paths separate here; by default 100, and 50 for each level of switches below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distance: Option<f64>,
}

fn one_switch() -> f64 {
    ONE_SWITCH
}

fn per_level() -> f64 {
    PER_LEVEL
}
