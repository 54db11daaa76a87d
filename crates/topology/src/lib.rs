//! Machines: the positions of PUs, caches and memory, and the distances between them.
//!
//! A [`Topology`] comes from hwloc (this machine, an XML file, a synthetic string) or from a
//! described machine (`machines/*.toml`, which adds latencies and bandwidths). It is plain
//! data: policies query distances and children without access to the system.
//!
//! PUs, NUMA nodes and objects are numbered logically (hwloc order, depth first), so the PUs below
//! any object are one contiguous range.

#![forbid(unsafe_code)]

pub mod cluster;
mod described;
mod error;
pub mod hostlist;
mod hwloc;
mod identity;
mod isolated;
pub mod links;
pub mod network;
pub mod slurm;
mod source;
mod tree;

pub use described::{Hardware, Link, LlcReplacement, NodeMemory};
pub use error::{DistanceError, TopologyError};
pub use identity::{Identity, identity_of_this_machine};
pub use isolated::{isolate_xml, serve as serve_xml};
pub use source::{
    described_machines, from_this_machine, from_xml, machine_names, resolve, resolve_cluster,
};
pub use tree::{Level, Node, Object, ObjectKind, Pu, Topology};
