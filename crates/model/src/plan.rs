//! Mapping, placement, and the plan that carries both to another run of the program.

use crate::ids::{LogicalNode, LogicalPu, OsNode, OsPu};
use crate::profile::ObjectKind;

/// Threads to PUs: `pu[t]` is where thread `t` runs (logical index).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// By thread.
    pub pu: Vec<LogicalPu>,
}

/// Pages to NUMA nodes: `node[p]` for the p-th page of a [`crate::PageUsage`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// By page index; `None` leaves the page to the kernel (first touch).
    pub node: Vec<Option<LogicalNode>>,
}

/// An object as another run of the same program has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// What it is.
    pub kind: ObjectKind,
    /// File and section, mapped file, call site, or stack owner.
    pub name: String,
    /// Stable path of the creating (or owning) thread.
    pub creator: Option<String>,
    /// Bytes.
    pub size: u64,
    /// n-th (from 0) of this kind, name, creator and size.
    pub order: u32,
}

/// One thread of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadPlan {
    /// Stable thread path.
    pub path: String,
    /// The PU it runs on, by position in the topology.
    pub pu: LogicalPu,
    /// The same PU by the kernel's number.
    pub os_pu: OsPu,
}

/// A run of neighbouring pages of one object that go to one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PagePlan {
    /// Index into [`Plan::objects`].
    pub object: u32,
    /// First page within the object (page 0 holds the object's first byte).
    pub first_page: u64,
    /// How many pages.
    pub pages: u64,
    /// Where, by position in the topology.
    pub node: LogicalNode,
    /// The same node by the kernel's number.
    pub os_node: OsNode,
}

/// A later change of the mapping or placement while the program runs.
#[derive(Clone, Debug, PartialEq)]
pub struct PhasePlan {
    /// When: this share (0..1) of the recorded run's clock has passed.
    pub at: f64,
    /// Threads to move.
    pub threads: Vec<ThreadPlan>,
    /// Pages to move.
    pub pages: Vec<PagePlan>,
}

/// What a policy was told and what it predicted.
#[derive(Clone, Debug, PartialEq)]
pub struct Predicted {
    /// Sum over unordered pairs of amount x distance (hop-weighted cost).
    pub cost: f64,
    /// Amount exchanged between threads on different NUMA nodes.
    pub remote: f64,
    /// Amount exchanged in all.
    pub total: f64,
    /// Largest node's share of the communication load over the mean share, at least 1.
    pub node_imbalance: f64,
    /// Accesses to pages on a node that is not the accessing thread's.
    pub remote_accesses: u64,
    /// Accesses to planned pages in all.
    pub accesses: u64,
}

/// Which policy answered, with everything needed to answer the same again.
#[derive(Clone, Debug, PartialEq)]
pub struct Provenance {
    /// Thread policy's name.
    pub thread_policy: String,
    /// Page policy's name.
    pub page_policy: String,
    /// Parameters as `name=value`, seed included.
    pub parameters: Vec<(String, String)>,
    /// The recorded command.
    pub command: Vec<String>,
    /// Tool version.
    pub tool: String,
}

/// Where everything should live: made for one machine, applicable to another run of the program.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Name or synthetic string of the machine.
    pub machine: String,
    /// Digest of the topology the plan was made for.
    pub fingerprint: String,
    /// How the plan came to be.
    pub provenance: Provenance,
    /// What the policies expected of it.
    pub predicted: Predicted,
    /// Bytes per page of every `first_page` and `pages` below.
    pub page_size: u64,
    /// Threads, by ascending index in the profile.
    pub threads: Vec<ThreadPlan>,
    /// Objects that `pages` refers to.
    pub objects: Vec<ObjectKey>,
    /// Page ranges, by object and first page.
    pub pages: Vec<PagePlan>,
    /// Later moves, by ascending `at`.
    pub schedule: Vec<PhasePlan>,
}

impl Predicted {
    /// Of a plan about which nothing is known: no traffic, an even machine.
    #[must_use]
    pub fn nothing() -> Self {
        Self {
            cost: 0.0,
            remote: 0.0,
            total: 0.0,
            node_imbalance: 1.0,
            remote_accesses: 0,
            accesses: 0,
        }
    }
}

impl Plan {
    /// An empty plan for a machine of this name and fingerprint, in 4 KiB pages: a start for plans that
    /// no policy made.
    #[must_use]
    pub fn by_hand(machine: &str, fingerprint: &str) -> Self {
        Self {
            machine: machine.to_owned(),
            fingerprint: fingerprint.to_owned(),
            provenance: Provenance {
                thread_policy: "by hand".to_owned(),
                page_policy: "by hand".to_owned(),
                parameters: Vec::new(),
                command: Vec::new(),
                tool: String::new(),
            },
            predicted: Predicted::nothing(),
            page_size: 4096,
            threads: Vec::new(),
            objects: Vec::new(),
            pages: Vec::new(),
            schedule: Vec::new(),
        }
    }
}
