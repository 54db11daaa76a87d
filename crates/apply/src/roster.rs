//! Who of a program has which role of a plan, and where its members go. Pure: names come from outside.
//!
//! A new member rarely has its name yet: a server forks, and the child writes its title some hundred instructions
//! later. Until it is known by name or code it is taken for a member of the role of which its creator made most in the
//! recording, so most members are in their places before their first instruction. When its name says otherwise it goes
//! to the place of its own role.

use std::collections::{BTreeMap, HashMap};

use numaloc_model::LogicalNode;
use numaloc_model::outcome::{RoleOutcome, SegmentOutcome};
use numaloc_model::profile::ObjectKind;
use numaloc_model::roles::{RoleKey, RoleMemory, RolesPlan, Seats, SegmentPages};

use crate::ptrace::errno_name;

/// Names of unknown roles that are kept; more are counted together.
const NAMES: usize = 100;

/// Where a member goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its PUs (kernel numbers); empty: all that the program may use.
    pub pus: Vec<u32>,
    /// Its memory policy.
    pub memory: RoleMemory,
}

/// What a member is called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Called {
    /// As of `numaloc_identity::role::called`; `None`: nothing yet.
    pub name: Option<String>,
    /// Whether it says what the member is: its own name or title, or the program that it has executed. A forked
    /// process is called as its program until it has one.
    pub is_own: bool,
}

/// Who created a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Creator {
    /// It is the program's first thread.
    Start,
    /// A member of this role.
    Role(usize),
    /// A member of no role of the plan.
    Unknown,
}

#[derive(Clone, Debug)]
struct Member {
    tgid: i32,
    is_process: bool,
    creator: Creator,
    called: Called,
    routine: Option<String>,
    /// Routine of the creator, if that is a thread without a name.
    creators_routine: Option<String>,
    role: Option<usize>,
    /// Whether its name or code says so.
    is_known: bool,
    /// Of roles with one node each.
    node: Option<LogicalNode>,
    /// Whether its first place is still its place.
    since_birth: bool,
    refused: Option<i32>,
}

/// The members of a plan's roles; see the module.
#[derive(Clone, Debug, Default)]
pub struct Roster {
    plan: RolesPlan,
    of_key: HashMap<RoleKey, usize>,
    members: HashMap<i32, Member>,
    /// Members with one node each: by role and node, and by node.
    on: HashMap<(usize, LogicalNode), u64>,
    on_node: HashMap<LogicalNode, u64>,
    counts: Vec<RoleOutcome>,
    refused: BTreeMap<i32, u64>,
    unknown: BTreeMap<String, u64>,
    segments: Vec<(u64, u64, BTreeMap<i32, u64>)>,
}

impl Roster {
    /// A roster without members.
    #[must_use]
    pub fn new(plan: &RolesPlan) -> Self {
        let counts = plan.roles.iter().map(|role| RoleOutcome {
            name: role.name.clone(),
            is_left: role.seats == Seats::Left,
            ..RoleOutcome::default()
        });
        let keys = plan.roles.iter().enumerate();
        Self {
            of_key: keys.map(|(at, role)| (role.key.clone(), at)).collect(),
            counts: counts.collect(),
            segments: vec![(0, 0, BTreeMap::new()); plan.segments.len()],
            plan: plan.clone(),
            ..Self::default()
        }
    }

    /// Whether start routines distinguish roles.
    #[must_use]
    pub fn needs_routines(&self) -> bool {
        let mut keys = self.plan.roles.iter().map(|role| &role.key);
        keys.any(|key| key.routine.is_some())
    }

    /// `tid` appeared: the first thread of its process, or a thread of process `tgid`. `creator`: who created it,
    /// `None` for the program's first thread. Returns its place.
    pub fn born(
        &mut self,
        tid: i32,
        tgid: i32,
        creator: Option<i32>,
        called: Called,
        routine: Option<String>,
    ) -> Place {
        let by = creator.and_then(|tid| self.members.get(&tid));
        let member = Member {
            tgid,
            is_process: tid == tgid,
            creator: match (creator, by.and_then(|by| by.role)) {
                (None, _) => Creator::Start,
                (Some(_), Some(role)) => Creator::Role(role),
                (Some(_), None) => Creator::Unknown,
            },
            creators_routine: by.and_then(|by| by.routine.clone()),
            called,
            routine,
            role: None,
            is_known: false,
            node: None,
            since_birth: true,
            refused: None,
        };
        self.members.insert(tid, member);
        self.assign(tid, true);
        self.place(tid)
    }

    /// `tid` is now called that. Returns the members that go elsewhere for it, with their places: itself, and threads
    /// of its process.
    pub fn called(&mut self, tid: i32, called: Called) -> Vec<(i32, Place)> {
        let Some(member) = self.members.get_mut(&tid) else {
            return Vec::new();
        };
        if member.called == called {
            return Vec::new();
        }
        member.called = called;
        let is_process = member.is_process;
        let mut changed = Vec::new();
        if self.assign(tid, false) {
            changed.push(tid);
        }
        if is_process {
            let threads = self.members.iter();
            let threads = threads.filter(|(other, member)| member.tgid == tid && **other != tid);
            let mut threads: Vec<i32> = threads.map(|(&tid, _)| tid).collect();
            threads.sort_unstable();
            changed.extend(threads.into_iter().filter(|&tid| self.assign(tid, false)));
        }
        changed
            .into_iter()
            .map(|tid| (tid, self.place(tid)))
            .collect()
    }

    /// The kernel refused the place of `tid`.
    pub fn refused(&mut self, tid: i32, errno: i32) {
        if let Some(member) = self.members.get_mut(&tid) {
            member.refused = Some(errno);
        }
    }

    /// `tid` ended, or is no longer followed; `pus` is its affinity then, if it could be read.
    pub fn ended(&mut self, tid: i32, pus: Option<&[u32]>) {
        let Some(member) = self.members.get(&tid).cloned() else {
            return;
        };
        let place = self.place(tid);
        self.unseat(tid);
        self.members.remove(&tid);
        let Some(role) = member.role else {
            let name = member.called.name.or(member.routine);
            let name = name.unwrap_or_else(|| {
                let what = if member.is_process {
                    "process"
                } else {
                    "thread"
                };
                match member.creator {
                    Creator::Role(role) => format!("{what} of {}", self.plan.roles[role].name),
                    Creator::Start | Creator::Unknown => format!("{what} without a name"),
                }
            });
            let is_full = self.unknown.len() >= NAMES && !self.unknown.contains_key(&name);
            let name = if is_full { "others".to_owned() } else { name };
            *self.unknown.entry(name).or_default() += 1;
            return;
        };
        let count = &mut self.counts[role];
        count.members += 1;
        count.by_name += u64::from(member.is_known);
        if place.pus.is_empty() {
            return;
        }
        match (member.refused, pus) {
            (Some(errno), _) => {
                count.refused += 1;
                *self.refused.entry(errno).or_default() += 1;
            }
            (None, Some(pus)) if pus != place.pus => count.elsewhere += 1,
            (None, _) => {
                count.placed += 1;
                count.since_birth += u64::from(member.since_birth);
            }
        }
    }

    /// Ends the members that are left, when nobody is followed any more.
    pub fn close(&mut self) {
        let mut left: Vec<i32> = self.members.keys().copied().collect();
        left.sort_unstable();
        left.into_iter().for_each(|tid| self.ended(tid, None));
    }

    /// Whether a member's place is decided by the plan.
    #[must_use]
    pub fn seats(&self, tid: i32) -> bool {
        let role = self.members.get(&tid).and_then(|member| member.role);
        role.is_some_and(|role| self.plan.roles[role].seats != Seats::Left)
    }

    /// The segment that memory of this kind, name and size is, mapped by `tid`: its number, and its pages' nodes
    /// (kernel numbers, of interleaving or the preferred one).
    #[must_use]
    pub fn segment(
        &self,
        tid: i32,
        kind: ObjectKind,
        name: &str,
        size: u64,
    ) -> Option<(usize, Pages)> {
        let role = self.members.get(&tid)?.role?;
        let segments = self.plan.segments.iter().enumerate();
        let mut fitting = segments.filter(|(_, segment)| {
            (segment.kind, &*segment.memory, segment.role as usize) == (kind, name, role)
                && (segment.bytes.0..=segment.bytes.1).contains(&size)
        });
        let (at, segment) = fitting.next()?;
        let nodes = self.plan.os_nodes(segment.pages.nodes());
        let pages = match segment.pages {
            SegmentPages::Interleave(_) => Pages::Interleave(nodes),
            SegmentPages::Prefer(_) => Pages::Prefer(*nodes.first()?),
        };
        Some((at, pages))
    }

    /// The kernel's answer (0 or an errno) to the policy for a mapping of a segment.
    pub fn mapped(&mut self, segment: usize, bytes: u64, errno: i32) {
        let (mappings, all, refused) = &mut self.segments[segment];
        *mappings += 1;
        if errno == 0 {
            *all = all.saturating_add(bytes);
        } else {
            *refused.entry(errno).or_default() += 1;
        }
    }

    /// Whether mappings are placed.
    #[must_use]
    pub fn has_segments(&self) -> bool {
        !self.plan.segments.is_empty()
    }

    /// Kernel numbers of all nodes of the plan.
    #[must_use]
    pub fn all_nodes(&self) -> Vec<u32> {
        let mut nodes: Vec<u32> = self.plan.nodes.iter().map(|node| node.os_node.0).collect();
        nodes.sort_unstable();
        nodes
    }

    /// What became of roles and segments; the unknown roles by number; refusals by errno name.
    #[must_use]
    pub fn outcome(&self) -> RosterOutcome {
        let segments = self.plan.segments.iter().zip(&self.segments);
        let named = |refused: &BTreeMap<i32, u64>| {
            let refused = refused.iter();
            refused
                .map(|(&errno, &count)| (errno_name(errno), count))
                .collect()
        };
        let mut unknown: Vec<(String, u64)> = self.unknown.clone().into_iter().collect();
        unknown.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        RosterOutcome {
            roles: self.counts.clone(),
            segments: segments
                .map(|(segment, (mappings, bytes, refused))| SegmentOutcome {
                    name: segment.name.clone(),
                    mappings: *mappings,
                    bytes: *bytes,
                    refused: named(refused),
                })
                .collect(),
            refused: named(&self.refused),
            unknown,
        }
    }

    /// Finds the role of `tid`, and its node. Returns whether its place has changed.
    fn assign(&mut self, tid: i32, is_birth: bool) -> bool {
        let Some(member) = self.members.get(&tid) else {
            return false;
        };
        let by_key = self.by_key(member);
        let is_named = member.called.is_own || member.called.name.is_none();
        let (role, is_known) = match by_key {
            Some(role) if is_named => (Some(role), true),
            None if member.called.is_own => (None, false),
            // Most that have no title yet will have one.
            _ => (self.usual(member).or(by_key), false),
        };
        let before = (member.role, member.role.map(|_| self.place(tid)));
        if before.0 == role {
            if let Some(member) = self.members.get_mut(&tid) {
                member.is_known |= is_known;
            }
            return false;
        }
        self.unseat(tid);
        let node = role.and_then(|role| self.deal(role));
        if let (Some(role), Some(node)) = (role, node) {
            *self.on.entry((role, node)).or_default() += 1;
            *self.on_node.entry(node).or_default() += 1;
        }
        if let Some(member) = self.members.get_mut(&tid) {
            (member.role, member.is_known, member.node) = (role, is_known, node);
        }
        let changed = before.1 != Some(self.place(tid));
        if let Some(member) = self.members.get_mut(&tid)
            && changed
            && !is_birth
        {
            member.since_birth = false;
        }
        changed
    }

    fn by_key(&self, member: &Member) -> Option<usize> {
        let creator = match member.creator {
            Creator::Role(role) => u32::try_from(role).ok(),
            Creator::Start => None,
            Creator::Unknown => {
                member.called.name.as_ref()?;
                None
            }
        };
        let key = match &member.called.name {
            Some(called) => {
                let process = self.members.get(&member.tgid).and_then(|first| first.role);
                if process.is_none() && !member.is_process {
                    return None;
                }
                RoleKey {
                    called: Some(called.clone()),
                    routine: None,
                    is_process: member.is_process,
                    parent: process
                        .filter(|_| !member.is_process)
                        .and_then(|role| u32::try_from(role).ok()),
                }
            }
            None => {
                let is_as_creator = member.routine.is_some()
                    && member.routine == member.creators_routine
                    && !member.is_process;
                if is_as_creator {
                    return creator.map(|role| role as usize);
                }
                RoleKey {
                    called: None,
                    routine: member.routine.clone(),
                    is_process: member.is_process,
                    parent: creator,
                }
            }
        };
        self.of_key.get(&key).copied()
    }

    /// The role of which the creator made most in the recording (ties: the first).
    fn usual(&self, member: &Member) -> Option<usize> {
        let creator = match member.creator {
            Creator::Start => None,
            Creator::Role(role) => u32::try_from(role).ok(),
            Creator::Unknown => return None,
        };
        let roles = self.plan.roles.iter().enumerate();
        let alike = roles.filter(|(_, role)| {
            role.creator == creator && role.key.is_process == member.is_process
        });
        let most = alike.max_by_key(|(at, role)| (role.members, std::cmp::Reverse(*at)));
        most.map(|(at, _)| at)
    }

    /// A node for a new member of a role with one node each: that with the fewest of the role, then of all.
    fn deal(&self, role: usize) -> Option<LogicalNode> {
        let Seats::Each(nodes) = &self.plan.roles[role].seats else {
            return None;
        };
        let count = |count: Option<&u64>| count.copied().unwrap_or(0);
        let fewest = |node: &&LogicalNode| {
            (
                count(self.on.get(&(role, **node))),
                count(self.on_node.get(node)),
                node.0,
            )
        };
        nodes.iter().min_by_key(fewest).copied()
    }

    fn unseat(&mut self, tid: i32) {
        let Some(member) = self.members.get_mut(&tid) else {
            return;
        };
        if let (Some(role), Some(node)) = (member.role, member.node.take()) {
            for count in [self.on.get_mut(&(role, node)), self.on_node.get_mut(&node)] {
                count
                    .into_iter()
                    .for_each(|count| *count = count.saturating_sub(1));
            }
        }
    }

    fn place(&self, tid: i32) -> Place {
        let member = self.members.get(&tid);
        let Some((member, role)) = member.and_then(|member| Some((member, member.role?))) else {
            return Place {
                pus: Vec::new(),
                memory: RoleMemory::Left,
            };
        };
        let role = &self.plan.roles[role];
        let pus = match (&role.seats, member.node) {
            (Seats::Each(_), Some(node)) => self.plan.pus(&[node]),
            (seats, _) => self.plan.pus(seats.nodes()),
        };
        Place {
            pus,
            memory: role.memory,
        }
    }
}

/// Where pages of a mapping go, by the kernel's numbers of nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pages {
    /// One after the other.
    Interleave(Vec<u32>),
    /// On this one.
    Prefer(u32),
}

/// What became of a plan's roles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RosterOutcome {
    /// By role of the plan.
    pub roles: Vec<RoleOutcome>,
    /// By segment of the plan.
    pub segments: Vec<SegmentOutcome>,
    /// Members whose PUs were refused, by errno name.
    pub refused: Vec<(String, u64)>,
    /// What members of no role of the plan are called, and how many there were, the most first.
    pub unknown: Vec<(String, u64)>,
}

#[cfg(test)]
mod tests;
