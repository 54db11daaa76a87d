//! Why hosts and a network do not make a cluster.

use super::limits::{MAX_FIGURE, TABLE_LIMIT};
use crate::hostlist::HostListError;
use crate::links::LinksError;

/// An inconsistent description of a cluster.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The list of hosts is empty.
    #[error("a cluster without hosts")]
    NoHosts,
    /// Two hosts have one name.
    #[error("host {host} is named twice")]
    NamedTwice {
        /// The name.
        host: String,
    },
    /// A list of host names that cannot be parsed.
    #[error(transparent)]
    Names(#[from] HostListError),
    /// A figure of links that no network has.
    #[error(transparent)]
    Links(#[from] LinksError),
    /// A figure of the network that no network has.
    #[error("{field} has {value} as number {number} of {of}, expected 0 to {MAX_FIGURE:e}")]
    Figure {
        /// The field of the description.
        field: &'static str,
        /// The figure.
        value: f64,
        /// Its position in the field, from 1.
        number: usize,
        /// Figures in the field.
        of: usize,
    },
    /// A field does not have one figure per level of switches.
    #[error("{found} {field} for {levels} levels of switches")]
    Levels {
        /// The field.
        field: &'static str,
        /// Its figures.
        found: usize,
        /// Levels of switches.
        levels: usize,
    },
    /// A dragonfly does not have one distance per level.
    #[error("{found} distances, expected 3 (groups, routers, hosts)")]
    Dragonfly {
        /// Its distances.
        found: usize,
    },
    /// A torus with fewer places than hosts.
    #[error("a torus of {dims:?} has no room for {hosts} hosts")]
    SmallTorus {
        /// Hosts along each dimension.
        dims: Vec<usize>,
        /// Hosts of the cluster.
        hosts: usize,
    },
    /// A torus with more hosts than a table of distances holds.
    #[error("a torus of {hosts} hosts, expected at most {TABLE_LIMIT}; describe it as a tree")]
    LargeTorus {
        /// Hosts of the cluster.
        hosts: usize,
    },
    /// A matrix that does not have hosts x hosts distances.
    #[error("{found} distances for {hosts} hosts, expected {}", hosts * hosts)]
    Matrix {
        /// Its distances.
        found: usize,
        /// Hosts of the cluster.
        hosts: usize,
    },
    /// Switches with fewer places than hosts.
    #[error("switches {arities:?} have no room for {hosts} hosts")]
    FewSwitches {
        /// Children of a switch, by level.
        arities: Vec<usize>,
        /// Hosts of the cluster.
        hosts: usize,
    },
    /// Two switches have one name.
    #[error("switch {switch} is described twice")]
    SwitchTwice {
        /// The name.
        switch: String,
    },
    /// A switch above another that is not described.
    #[error("switch {switch} is above {below}, which is not described")]
    NoSuchSwitch {
        /// The upper one.
        switch: String,
        /// The missing one.
        below: String,
    },
    /// A host or switch below two switches, or twice below one.
    #[error("{below} is below two switches, expected a tree")]
    TwoSwitches {
        /// The host or switch.
        below: String,
    },
    /// A host of the cluster below no switch.
    #[error("host {host} is below no switch")]
    NoSwitch {
        /// Its name.
        host: String,
    },
    /// Switches that are below themselves.
    #[error("the switches above some hosts form a circle, expected a tree")]
    SwitchCircle,
    /// Too many levels.
    #[error("switch {switch} is below {levels} levels of switches, expected fewer")]
    DeepSwitches {
        /// Its name.
        switch: String,
        /// The most levels.
        levels: usize,
    },
    /// More nodes than a table of distances holds.
    #[error(
        "{nodes} NUMA nodes under a torus or matrix network, expected at most {TABLE_LIMIT}; describe it as a tree"
    )]
    TooManyNodes {
        /// Nodes of all hosts.
        nodes: usize,
    },
}
