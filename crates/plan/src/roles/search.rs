//! Tries ways of placing roles and segments, by the model of worth.
//!
//! From a few simple ways, the best is improved role by role and segment by segment, the most accesses first, until no
//! single change saves more than [`LEAST`]. Either all roles that matter are bound or none, unless it was asked for.
//! What saves nothing beyond a tie is left as it is in the end. A way that is not faster than the program as it is by
//! more than the model's error is not taken, unless a part of it was asked for.

use std::collections::HashMap;

use numaloc_model::roles::{RoleMemory, Seats, SegmentPages};
use numaloc_model::{LogicalNode, LogicalPu, Mapping, Placement};

use super::found::Found;
use super::ways::{SMALL, Way};
use super::words::Fixed;
use crate::worth::{Model, Seated, TIE, Worth};

/// Most roles, segments, and nodes that are varied.
const MOST: usize = 6;
/// Share of the time that a change must save.
const LEAST: f64 = 0.005;
/// Most rounds of improvement.
const ROUNDS: usize = 4;

/// A way with one role or segment elsewhere.
type Change = Box<dyn Fn(&Way) -> Way>;

/// The way that was taken.
pub(super) struct Chosen {
    pub way: Way,
    pub worth: Worth,
    pub as_it_is: Worth,
    pub rated: usize,
}

pub(super) struct Search<'s, 'm> {
    model: &'m Model<'m>,
    found: &'s Found,
    os: &'s Mapping,
    fixed: Fixed,
    /// Mappings that were rated already.
    seated: HashMap<(bool, Vec<LogicalPu>), Seated<'m>>,
    rated: usize,
}

impl<'s, 'm> Search<'s, 'm> {
    pub fn new(model: &'m Model<'m>, found: &'s Found, os: &'s Mapping, fixed: Fixed) -> Self {
        Self {
            model,
            found,
            os,
            fixed,
            seated: HashMap::new(),
            rated: 0,
        }
    }

    /// Where threads and pages are under a way.
    pub fn places(&self, way: &Way) -> (Mapping, Placement) {
        let (profile, machine) = (self.model.profile(), self.model.machine());
        (
            way.mapping(self.found, profile, machine, self.os),
            way.placement(self.found, profile, machine),
        )
    }

    fn rate(&mut self, way: &Way) -> Worth {
        self.rated += 1;
        let (mapping, placement) = self.places(way);
        let model = self.model;
        let key = (way.binds(self.found), mapping.pu.clone());
        let seated = self.seated.entry(key);
        let seated = seated.or_insert_with(|| match way.binds(self.found) {
            true => model.seated(&mapping),
            false => model.unbound(&mapping),
        });
        seated.worth(&placement)
    }

    /// The way that is taken.
    pub fn run(&mut self) -> Chosen {
        let as_it_is = self.rate(&Way::as_it_is(self.found));
        let mut best = (self.asked(Way::as_it_is(self.found)), as_it_is);
        best.1 = self.rate(&best.0);
        for way in self.starts() {
            self.keep_better(&mut best, way, 0.0);
        }
        for _ in 0..ROUNDS {
            let before = best.1.seconds;
            for way in self.changes() {
                let changed = way(&best.0);
                self.keep_better(&mut best, changed, LEAST);
            }
            if best.1.seconds >= before {
                break;
            }
        }
        let mut chosen = self.simplified(best);
        if !chosen.1.saves(&as_it_is) {
            let way = self.asked(Way::as_it_is(self.found));
            chosen = (way.clone(), self.rate(&way));
        }
        let (way, worth) = chosen;
        Chosen {
            way,
            worth,
            as_it_is,
            rated: self.rated,
        }
    }

    fn keep_better(&mut self, best: &mut (Way, Worth), way: Way, by: f64) {
        if way != best.0 && !way.is_partial(self.found) {
            let worth = self.rate(&way);
            if worth.seconds < best.1.seconds * (1.0 - by) {
                *best = (way, worth);
            }
        }
    }

    /// A way with what was asked for.
    fn asked(&self, mut way: Way) -> Way {
        for (at, role) in &self.fixed.roles {
            way.roles[*at] = role.clone();
        }
        for (at, segment) in &self.fixed.segments {
            way.segments[*at].clone_from(segment);
        }
        way
    }

    /// Roles that are varied, the most accesses first.
    fn roles(&self) -> Vec<usize> {
        let roles = &self.found.roles;
        let is_open = |at: &usize| {
            roles[*at].share >= SMALL && !self.fixed.roles.iter().any(|(fixed, _)| fixed == at)
        };
        let mut open: Vec<usize> = (0..roles.len()).filter(is_open).collect();
        open.sort_by(|&a, &b| roles[b].share.total_cmp(&roles[a].share).then(a.cmp(&b)));
        open.truncate(MOST);
        open
    }

    /// Segments that are varied, the most accesses first.
    fn segments(&self) -> Vec<usize> {
        let segments = &self.found.segments;
        let is_open = |at: &usize| {
            segments[*at].share >= SMALL
                && segments[*at].bytes.is_some()
                && !self.fixed.segments.iter().any(|(fixed, _)| fixed == at)
        };
        (0..segments.len()).filter(is_open).take(MOST).collect()
    }

    /// All roles on each node in turn, on one node each, on the first node, or each role on a node of its own; memory
    /// as it is, or interleaved.
    fn starts(&self) -> Vec<Way> {
        let nodes = self.model.machine().nodes_with_pus();
        let (roles, segments) = (self.roles(), self.segments());
        let each = |_: usize| Seats::Each(nodes.clone());
        let together = |_: usize| Seats::Any(nodes[..1].to_vec());
        let apart = |at: usize| Seats::Any(vec![nodes[at % nodes.len()]]);
        let left = |_: usize| Seats::Left;
        let seats: [&dyn Fn(usize) -> Seats; 4] = [&left, &each, &together, &apart];
        let mut ways = Vec::new();
        for seat in seats {
            for is_spread in [false, true] {
                let mut way = Way::as_it_is(self.found);
                for (at, &role) in roles.iter().enumerate() {
                    way.roles[role] = with_memory(seat(at), RoleMemory::Left);
                }
                for &segment in segments.iter().filter(|_| is_spread) {
                    way.segments[segment] = Some(SegmentPages::Interleave(nodes.clone()));
                }
                ways.push(self.asked(way));
            }
        }
        ways
    }

    /// Changes of one role or segment.
    fn changes(&self) -> Vec<Change> {
        let nodes = self.model.machine().nodes_with_pus();
        let few = || nodes.iter().take(MOST).copied();
        let mut changes: Vec<Change> = Vec::new();
        for role in self.roles() {
            let mut seats = vec![Seats::Left, Seats::Each(nodes.clone())];
            seats.extend(few().map(|node| Seats::Any(vec![node])));
            for seat in seats {
                for memory in [RoleMemory::Left, RoleMemory::Interleave] {
                    let changed = with_memory(seat.clone(), memory);
                    changes.push(Box::new(move |way| {
                        let mut way = way.clone();
                        way.roles[role] = changed.clone();
                        way
                    }));
                }
            }
        }
        for segment in self.segments() {
            let mut pages = vec![None, Some(SegmentPages::Interleave(nodes.clone()))];
            pages.extend(few().map(|node: LogicalNode| Some(SegmentPages::Prefer(node))));
            for page in pages {
                changes.push(Box::new(move |way| {
                    let mut way = way.clone();
                    way.segments[segment].clone_from(&page);
                    way
                }));
            }
        }
        changes
    }

    /// The way with everything as it is that costs no more than a tie in all.
    fn simplified(&mut self, (mut way, mut worth): (Way, Worth)) -> (Way, Worth) {
        let most = worth.seconds * (1.0 + TIE);
        let mut simpler = |search: &mut Self, other: Way| {
            if other != way && !other.is_partial(search.found) {
                let rated = search.rate(&other);
                if rated.seconds <= most {
                    (way, worth) = (other, rated);
                }
            }
            way.clone()
        };
        let mut now = simpler(self, self.asked(Way::as_it_is(self.found)));
        // Policies of single segments remain rather than those of all memory of a role.
        for role in self.roles().into_iter().rev() {
            let seats = now.roles[role].0.clone();
            now.roles[role] = with_memory(seats, RoleMemory::Left);
            now = simpler(self, now);
            now.roles[role] = (Seats::Left, RoleMemory::Left);
            now = simpler(self, now);
        }
        for segment in self.segments().into_iter().rev() {
            now.segments[segment] = None;
            now = simpler(self, now);
        }
        (way, worth)
    }
}

/// Members that are bound have their private memory where they run, whatever policy their creator has.
fn with_memory(seats: Seats, memory: RoleMemory) -> (Seats, RoleMemory) {
    let is_bound = seats != Seats::Left;
    match memory {
        RoleMemory::Left if is_bound => (seats, RoleMemory::Local),
        memory => (seats, memory),
    }
}
