//! Plans by role: where the threads and processes of a role run, and where named memory is, however many of them come
//! and go.

use std::collections::HashSet;

use crate::flaw::{Flaw, OS_NODES, flaw};
use crate::ids::{LogicalNode, OsNode};
use crate::profile::ObjectKind;

/// How the members of a role are recognised in any run: by what they are called, else by the code that they run and
/// their creator, never by how many were created before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RoleKey {
    /// What they are called (`numaloc_identity::role::called`); `None`: they have no name.
    pub called: Option<String>,
    /// Start routine of threads without a name; `None`: it is not known.
    pub routine: Option<String>,
    /// Whether they are the first threads of their processes.
    pub is_process: bool,
    /// A role before this one in its plan: of threads with a name, that of their process's first thread; of members
    /// without a name, that of their creator. `None`: first threads with a name, and the program's first thread.
    pub parent: Option<u32>,
}

/// Where the members of a role run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Seats {
    /// Where the kernel lets them.
    #[default]
    Left,
    /// On any PU of these nodes.
    Any(Vec<LogicalNode>),
    /// Each on the PUs of one of these nodes: that with the fewest of them when it appears.
    Each(Vec<LogicalNode>),
}

impl Seats {
    /// Their nodes; none if they are left to the kernel.
    #[must_use]
    pub fn nodes(&self) -> &[LogicalNode] {
        match self {
            Self::Left => &[],
            Self::Any(nodes) | Self::Each(nodes) => nodes,
        }
    }
}

/// The memory policy of a role's threads: for memory that has none of its own, and that they touch first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RoleMemory {
    /// As their creator left it.
    #[default]
    Left,
    /// On the node where they run.
    Local,
    /// One page after the other on all nodes of the plan.
    Interleave,
}

impl RoleMemory {
    /// All, with their names in files.
    pub const NAMES: [(Self, &'static str); 3] = [
        (Self::Left, "left"),
        (Self::Local, "local"),
        (Self::Interleave, "interleave"),
    ];
}

/// A role of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolePlan {
    /// Its name for readers.
    pub name: String,
    /// How its members are recognised.
    pub key: RoleKey,
    /// Role that created most of its members, before this one in the plan; `None`: the program's start.
    pub creator: Option<u32>,
    /// Number of members in the recording.
    pub members: u64,
    /// Where they run.
    pub seats: Seats,
    /// Their memory policy.
    pub memory: RoleMemory,
}

/// Where the pages of a segment go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SegmentPages {
    /// One after the other on these nodes.
    Interleave(Vec<LogicalNode>),
    /// On this node, on others if it is full.
    Prefer(LogicalNode),
}

impl SegmentPages {
    /// Its nodes.
    #[must_use]
    pub fn nodes(&self) -> &[LogicalNode] {
        match self {
            Self::Interleave(nodes) => nodes,
            Self::Prefer(node) => std::slice::from_ref(node),
        }
    }
}

/// Named memory of a plan: mappings of one kind and name that threads of one role make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentPlan {
    /// Its name for readers.
    pub name: String,
    /// Mapping or shared memory.
    pub kind: ObjectKind,
    /// The objects' name.
    pub memory: String,
    /// Role of the threads that map it.
    pub role: u32,
    /// Least and greatest size in bytes: other mappings of this kind, name and role are smaller or larger.
    pub bytes: (u64, u64),
    /// Where its pages go.
    pub pages: SegmentPages,
}

/// A node of the machine that a plan is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePlan {
    /// By position in the topology.
    pub node: LogicalNode,
    /// The kernel's number.
    pub os_node: OsNode,
    /// Its PUs by the kernel's numbers.
    pub os_pus: Vec<u32>,
}

/// The roles, the named memory, and the nodes that they are on. Empty in plans for single threads and pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RolesPlan {
    /// The machine's nodes with PUs, by position in the topology.
    pub nodes: Vec<NodePlan>,
    /// All roles of the recording, also those that are left to the kernel.
    pub roles: Vec<RolePlan>,
    /// Named memory with a policy.
    pub segments: Vec<SegmentPlan>,
}

/// Most roles, segments or nodes of a plan, and bytes of a name: more are no plan of ours.
const MOST: usize = 4096;
/// Numbers of PUs are below this.
const OS_PUS: u32 = 1 << 20;

impl RolesPlan {
    /// Whether the plan is not one by role.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.roles.is_empty()
    }

    /// The node with this position in the topology.
    #[must_use]
    pub fn node(&self, node: LogicalNode) -> Option<&NodePlan> {
        self.nodes.iter().find(|found| found.node == node)
    }

    /// PUs (kernel numbers) of these nodes, ascending.
    #[must_use]
    pub fn pus(&self, nodes: &[LogicalNode]) -> Vec<u32> {
        let nodes = nodes.iter().filter_map(|&node| self.node(node));
        let mut pus: Vec<u32> = nodes.flat_map(|node| node.os_pus.iter().copied()).collect();
        pus.sort_unstable();
        pus.dedup();
        pus
    }

    /// Kernel numbers of these nodes, ascending.
    #[must_use]
    pub fn os_nodes(&self, nodes: &[LogicalNode]) -> Vec<u32> {
        let nodes = nodes.iter().filter_map(|&node| self.node(node));
        let mut nodes: Vec<u32> = nodes.map(|node| node.os_node.0).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// Whether memory of any kind has a policy.
    #[must_use]
    pub fn has_memory(&self) -> bool {
        let own = |role: &RolePlan| role.memory != RoleMemory::Left;
        !self.segments.is_empty() || self.roles.iter().any(own)
    }

    /// Checks for values that cannot be applied.
    pub(crate) fn check(&self) -> Result<(), Flaw> {
        for (name, count) in [
            ("nodes", self.nodes.len()),
            ("roles", self.roles.len()),
            ("segments", self.segments.len()),
        ] {
            if count > MOST {
                return flaw(format!("roles.{name}"), count, format!("at most {MOST}"));
            }
        }
        self.check_nodes()?;
        let mut keys = HashSet::new();
        for (at, role) in self.roles.iter().enumerate() {
            let place = format!("roles.roles[{at}]");
            check_name(&format!("{place}.name"), &role.name)?;
            for name in role.key.called.iter().chain(&role.key.routine) {
                check_name(&format!("{place}.called or routine"), name)?;
            }
            for (name, other) in [("parent", role.key.parent), ("creator", role.creator)] {
                if let Some(other) = other.filter(|&other| other as usize >= at) {
                    let expected = "the number of a role before it";
                    return flaw(format!("{place}.{name}"), other, expected);
                }
            }
            if !keys.insert(&role.key) {
                let expected = "members that no role before it has";
                return flaw(place, format!("{:?} again", role.name), expected);
            }
            self.check_on(&format!("{place}.on"), role.seats.nodes())?;
            if role.seats != Seats::Left && self.pus(role.seats.nodes()).is_empty() {
                return flaw(format!("{place}.on"), "no PU", "nodes with PUs");
            }
        }
        for (at, segment) in self.segments.iter().enumerate() {
            let place = format!("roles.segments[{at}]");
            check_name(&format!("{place}.name"), &segment.name)?;
            check_name(&format!("{place}.memory"), &segment.memory)?;
            if !matches!(segment.kind, ObjectKind::Mapping | ObjectKind::Shared) {
                let found = segment.kind.name();
                return flaw(format!("{place}.kind"), found, "mapping or shared");
            }
            if segment.role as usize >= self.roles.len() {
                let expected = format!("a number below {}", self.roles.len());
                return flaw(format!("{place}.role"), segment.role, expected);
            }
            let (least, most) = segment.bytes;
            if least > most {
                let expected = format!("at most {most}");
                return flaw(format!("{place}.at_least_bytes"), least, expected);
            }
            if segment.pages.nodes().is_empty() {
                return flaw(format!("{place}.on"), "no node", "one node or more");
            }
            self.check_on(&format!("{place}.on"), segment.pages.nodes())?;
        }
        Ok(())
    }

    fn check_nodes(&self) -> Result<(), Flaw> {
        let mut seen = HashSet::new();
        for (at, node) in self.nodes.iter().enumerate() {
            let place = format!("roles.nodes[{at}]");
            if !seen.insert(node.node) {
                let expected = "a node that is not there yet";
                return flaw(format!("{place}.node"), node.node.0, expected);
            }
            if node.os_node.0 >= OS_NODES {
                let expected = format!("a number below {OS_NODES}");
                return flaw(format!("{place}.os_node"), node.os_node.0, expected);
            }
            if let Some(pu) = node.os_pus.iter().find(|&&pu| pu >= OS_PUS) {
                let expected = format!("numbers below {OS_PUS}");
                return flaw(format!("{place}.os_pus"), pu, expected);
            }
        }
        Ok(())
    }

    fn check_on(&self, place: &str, nodes: &[LogicalNode]) -> Result<(), Flaw> {
        match nodes.iter().find(|&&node| self.node(node).is_none()) {
            Some(node) => flaw(place, node.0, "nodes of roles.nodes"),
            None => Ok(()),
        }
    }
}

fn check_name(place: &str, name: &str) -> Result<(), Flaw> {
    match name.is_empty() || name.len() > MOST || name.contains(char::is_control) {
        true => flaw(
            place,
            format!("{} bytes", name.len()),
            format!("1 to {MOST} bytes without control characters"),
        ),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two nodes; a first thread, clients of it on one node each, and their shared memory.
    pub(crate) fn plan() -> RolesPlan {
        let role = |name: &str, parent| RolePlan {
            name: name.to_owned(),
            key: RoleKey {
                called: Some(name.to_owned()),
                is_process: true,
                ..RoleKey::default()
            },
            creator: parent,
            members: 4,
            seats: Seats::Each(vec![LogicalNode(0), LogicalNode(1)]),
            memory: RoleMemory::Local,
        };
        RolesPlan {
            nodes: [0, 1]
                .map(|node| NodePlan {
                    node: LogicalNode(node),
                    os_node: OsNode(2 * node),
                    os_pus: vec![node, node + 2],
                })
                .into(),
            roles: vec![role("main", None), role("client", Some(0))],
            segments: vec![SegmentPlan {
                name: "cache".to_owned(),
                kind: ObjectKind::Shared,
                memory: "[anon]".to_owned(),
                role: 0,
                bytes: (1, 2),
                pages: SegmentPages::Interleave(vec![LogicalNode(0), LogicalNode(1)]),
            }],
        }
    }

    #[test]
    fn nodes_have_the_kernels_numbers() {
        let plan = plan();
        let both = plan.segments[0].pages.nodes();
        assert_eq!(plan.check(), Ok(()));
        assert_eq!(plan.pus(both), [0, 1, 2, 3]);
        assert_eq!(plan.os_nodes(both), [0, 2]);
        assert_eq!(plan.pus(&[LogicalNode(1)]), [1, 3]);
    }

    #[test]
    fn what_cannot_be_applied_is_found() {
        type Damage = fn(&mut RolesPlan);
        let damages: [(&str, Damage); 12] = [
            ("roles.roles[1].name", |plan| plan.roles[1].name.clear()),
            ("roles.roles[1].called or routine", |plan| {
                plan.roles[1].key.called = Some("\u{1b}[2J".to_owned());
            }),
            ("roles.roles[1].creator", |plan| {
                plan.roles[1].creator = Some(1)
            }),
            ("roles.roles[1].parent", |plan| {
                plan.roles[1].key.parent = Some(7)
            }),
            ("roles.roles[1]", |plan| {
                plan.roles[1].key = plan.roles[0].key.clone()
            }),
            ("roles.roles[0].on", |plan| {
                plan.roles[0].seats = Seats::Any(vec![LogicalNode(2)])
            }),
            ("roles.roles[0].on", |plan| {
                plan.roles[0].seats = Seats::Any(Vec::new())
            }),
            ("roles.nodes[1].node", |plan| {
                plan.nodes[1].node = LogicalNode(0)
            }),
            ("roles.nodes[1].os_node", |plan| {
                plan.nodes[1].os_node = OsNode(OS_NODES)
            }),
            ("roles.nodes[0].os_pus", |plan| {
                plan.nodes[0].os_pus[0] = u32::MAX
            }),
            ("roles.segments[0].kind", |plan| {
                plan.segments[0].kind = ObjectKind::Heap
            }),
            ("roles.segments[0].at_least_bytes", |plan| {
                plan.segments[0].bytes = (3, 2)
            }),
        ];
        for (place, damage) in damages {
            let mut plan = plan();
            damage(&mut plan);
            assert_eq!(plan.check().unwrap_err().place, place);
        }
        let mut many = plan();
        many.segments = vec![many.segments[0].clone(); MOST + 1];
        assert_eq!(many.check().unwrap_err().place, "roles.segments");
    }
}
