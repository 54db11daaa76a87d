//! The part `roles` of a plan file.

use std::path::Path;

use numaloc_model::profile::ObjectKind;
use numaloc_model::roles::{
    NodePlan, RoleKey, RoleMemory, RolePlan, RolesPlan, Seats, SegmentPages, SegmentPlan,
};
use numaloc_model::{LogicalNode, OsNode};
use serde::{Deserialize, Serialize};

use crate::error::FormatError;

#[derive(Serialize, Deserialize)]
pub(super) struct RolesFile {
    nodes: Vec<NodeFile>,
    roles: Vec<RoleFile>,
    #[serde(default)]
    segments: Vec<SegmentFile>,
}

#[derive(Serialize, Deserialize)]
struct NodeFile {
    node: u32,
    os_node: u32,
    os_pus: Vec<u32>,
}

#[derive(Serialize, Deserialize)]
struct RoleFile {
    name: String,
    #[serde(default)]
    called: Option<String>,
    #[serde(default)]
    routine: Option<String>,
    is_process: bool,
    #[serde(default)]
    parent: Option<u32>,
    #[serde(default)]
    creator: Option<u32>,
    members: u64,
    seats: String,
    #[serde(default)]
    on: Vec<u32>,
    memory: String,
}

#[derive(Serialize, Deserialize)]
struct SegmentFile {
    name: String,
    kind: String,
    memory: String,
    role: u32,
    at_least_bytes: u64,
    at_most_bytes: u64,
    pages: String,
    on: Vec<u32>,
}

impl RolesFile {
    pub fn of(plan: &RolesPlan) -> Self {
        Self {
            nodes: plan
                .nodes
                .iter()
                .map(|node| NodeFile {
                    node: node.node.0,
                    os_node: node.os_node.0,
                    os_pus: node.os_pus.clone(),
                })
                .collect(),
            roles: plan.roles.iter().map(role_file).collect(),
            segments: plan.segments.iter().map(segment_file).collect(),
        }
    }

    /// # Errors
    /// [`FormatError`] with the place of a word that is none of the format's.
    pub fn plan(self, path: &Path) -> Result<RolesPlan, FormatError> {
        let node = |node: NodeFile| NodePlan {
            node: LogicalNode(node.node),
            os_node: OsNode(node.os_node),
            os_pus: node.os_pus,
        };
        let roles = self.roles.into_iter().enumerate();
        let segments = self.segments.into_iter().enumerate();
        Ok(RolesPlan {
            nodes: self.nodes.into_iter().map(node).collect(),
            roles: roles
                .map(|(at, role)| role_plan(role, at, path))
                .collect::<Result<_, _>>()?,
            segments: segments
                .map(|(at, segment)| segment_plan(segment, at, path))
                .collect::<Result<_, _>>()?,
        })
    }
}

fn numbers(nodes: &[LogicalNode]) -> Vec<u32> {
    nodes.iter().map(|node| node.0).collect()
}

fn nodes(numbers: Vec<u32>) -> Vec<LogicalNode> {
    numbers.into_iter().map(LogicalNode).collect()
}

fn role_file(role: &RolePlan) -> RoleFile {
    let seats = match role.seats {
        Seats::Left => "left",
        Seats::Any(_) => "any",
        Seats::Each(_) => "each",
    };
    let memory = RoleMemory::NAMES.iter().find(|(of, _)| *of == role.memory);
    RoleFile {
        name: role.name.clone(),
        called: role.key.called.clone(),
        routine: role.key.routine.clone(),
        is_process: role.key.is_process,
        parent: role.key.parent,
        creator: role.creator,
        members: role.members,
        seats: seats.to_owned(),
        on: numbers(role.seats.nodes()),
        memory: memory.map_or("left", |(_, name)| name).to_owned(),
    }
}

fn role_plan(role: RoleFile, at: usize, path: &Path) -> Result<RolePlan, FormatError> {
    let refused = |field: &str, found: &str, expected: &'static str| {
        let place = format!("roles.roles[{at}].{field}");
        FormatError::corrupt(path, place, format!("{found:?}"), expected)
    };
    let on = nodes(role.on);
    let seats = match role.seats.as_str() {
        "left" => Seats::Left,
        "any" => Seats::Any(on),
        "each" => Seats::Each(on),
        other => return Err(refused("seats", other, "left, any or each")),
    };
    let memory = RoleMemory::NAMES.iter().find(|(_, of)| *of == role.memory);
    let (memory, _) =
        memory.ok_or_else(|| refused("memory", &role.memory, "left, local or interleave"))?;
    Ok(RolePlan {
        key: RoleKey {
            called: role.called,
            routine: role.routine,
            is_process: role.is_process,
            parent: role.parent,
        },
        name: role.name,
        creator: role.creator,
        members: role.members,
        seats,
        memory: *memory,
    })
}

fn segment_file(segment: &SegmentPlan) -> SegmentFile {
    let pages = match segment.pages {
        SegmentPages::Interleave(_) => "interleave",
        SegmentPages::Prefer(_) => "prefer",
    };
    SegmentFile {
        name: segment.name.clone(),
        kind: segment.kind.name().to_owned(),
        memory: segment.memory.clone(),
        role: segment.role,
        at_least_bytes: segment.bytes.0,
        at_most_bytes: segment.bytes.1,
        pages: pages.to_owned(),
        on: numbers(segment.pages.nodes()),
    }
}

fn segment_plan(segment: SegmentFile, at: usize, path: &Path) -> Result<SegmentPlan, FormatError> {
    let refused = |field: &str, found: String, expected: &'static str| {
        let place = format!("roles.segments[{at}].{field}");
        FormatError::corrupt(path, place, found, expected)
    };
    let kind = ObjectKind::from_name(&segment.kind)
        .ok_or_else(|| refused("kind", format!("{:?}", segment.kind), "mapping or shared"))?;
    let pages = match (segment.pages.as_str(), segment.on.as_slice()) {
        ("interleave", _) => SegmentPages::Interleave(nodes(segment.on)),
        ("prefer", &[node]) => SegmentPages::Prefer(LogicalNode(node)),
        ("prefer", on) => return Err(refused("on", format!("{} nodes", on.len()), "one node")),
        (other, _) => {
            return Err(refused(
                "pages",
                format!("{other:?}"),
                "interleave or prefer",
            ));
        }
    };
    Ok(SegmentPlan {
        name: segment.name,
        kind,
        memory: segment.memory,
        role: segment.role,
        bytes: (segment.at_least_bytes, segment.at_most_bytes),
        pages,
    })
}

#[cfg(test)]
mod tests {
    use super::super::{read, to_json, write};
    use super::*;
    use numaloc_model::Plan;

    fn plan() -> Plan {
        let key = |called: Option<&str>, routine: Option<&str>, parent| RoleKey {
            called: called.map(str::to_owned),
            routine: routine.map(str::to_owned),
            is_process: routine.is_none(),
            parent,
        };
        let role = |name: &str, key: RoleKey, seats, memory| RolePlan {
            name: name.to_owned(),
            creator: (name != "main thread").then_some(0),
            members: 3,
            key,
            seats,
            memory,
        };
        let both = || vec![LogicalNode(0), LogicalNode(1)];
        let roles = vec![
            role(
                "main thread",
                key(None, None, None),
                Seats::Left,
                RoleMemory::Left,
            ),
            role(
                "client",
                key(Some("client"), None, None),
                Seats::Each(both()),
                RoleMemory::Local,
            ),
            role(
                "work",
                key(None, Some("work"), Some(1)),
                Seats::Any(vec![LogicalNode(1)]),
                RoleMemory::Interleave,
            ),
        ];
        let segment = |name: &str, pages| SegmentPlan {
            name: name.to_owned(),
            kind: ObjectKind::Shared,
            memory: "[anon]".to_owned(),
            role: 0,
            bytes: (4096, u64::MAX),
            pages,
        };
        Plan {
            roles: RolesPlan {
                nodes: [0, 1]
                    .map(|node| NodePlan {
                        node: LogicalNode(node),
                        os_node: OsNode(node),
                        os_pus: vec![2 * node, 2 * node + 1],
                    })
                    .into(),
                roles,
                segments: vec![
                    segment("cache", SegmentPages::Interleave(both())),
                    segment("log", SegmentPages::Prefer(LogicalNode(1))),
                ],
            },
            ..Plan::by_hand("m", "00")
        }
    }

    #[test]
    fn plans_by_role_are_read_as_written_and_refused_by_readers_that_do_not_know_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plan.json");
        write(&plan(), &path, false).unwrap();
        assert_eq!(read(&path).unwrap(), plan());
        assert!(to_json(&plan()).contains("\"version\": 2"));
        let other = Plan::by_hand("m", "00");
        assert!(to_json(&other).contains("\"version\": 1") && !to_json(&other).contains("roles"));
    }

    #[test]
    fn broken_roles_are_refused_with_their_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plan.json");
        let good = to_json(&plan());
        for (from, to, says) in [
            ("\"each\"", "\"all\"", "roles.roles[1].seats: found \"all\""),
            (
                "\"memory\": \"local\"",
                "\"memory\": \"far\"",
                "roles.roles[1].memory",
            ),
            (
                "\"called\": \"client\"",
                "\"called\": \"\\u001b[1m\"",
                "roles.roles[1].called",
            ),
            ("\"prefer\"", "\"bind\"", "roles.segments[1].pages"),
            ("\"prefer\"", "\"interleave\"", ""),
            (
                "\"interleave\",\n        \"on\"",
                "\"prefer\",\n        \"on\"",
                "found 2 nodes",
            ),
            (
                "\"kind\": \"shared\"",
                "\"kind\": \"stack\"",
                "roles.segments[0].kind",
            ),
            (
                "\"at_least_bytes\": 4096",
                "\"at_least_bytes\": -1",
                "line ",
            ),
            ("\"creator\": 0", "\"creator\": 9", "roles.roles[1].creator"),
            (
                "\"os_node\": 1",
                "\"os_node\": 32768",
                "roles.nodes[1].os_node",
            ),
        ] {
            assert!(good.contains(from), "{from}");
            std::fs::write(&path, good.replacen(from, to, 1)).unwrap();
            match read(&path) {
                Ok(_) => assert_eq!(says, "", "{from} for {to}"),
                Err(error) => {
                    let error = error.to_string();
                    assert!(!says.is_empty() && error.contains(says), "{error}");
                    assert!(!error.contains('\n'), "{error}");
                }
            }
        }
        for cut in (0..good.len() - 2).step_by(13) {
            std::fs::write(&path, &good[..cut]).unwrap();
            assert!(read(&path).is_err());
        }
    }
}
