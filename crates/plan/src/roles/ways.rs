//! A way of placing roles and segments, and where it puts the threads and pages of the recorded run.

use numaloc_model::roles::{RoleMemory, Seats, SegmentPages};
use numaloc_model::{LogicalNode, LogicalPu, Mapping, Placement, Profile};
use numaloc_topology::Topology;

use super::found::Found;

/// Roles and segments with a smaller share (0..=1) of the accesses do not matter.
pub(super) const SMALL: f64 = 0.01;

/// Where roles and segments are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// By role.
    pub roles: Vec<(Seats, RoleMemory)>,
    /// By segment; `None`: as it is.
    pub segments: Vec<Option<SegmentPages>>,
}

impl Way {
    /// Everything as it is.
    pub fn as_it_is(found: &Found) -> Self {
        Self {
            roles: vec![(Seats::Left, RoleMemory::Left); found.roles.len()],
            segments: vec![None; found.segments.len()],
        }
    }

    /// Whether all roles with a share of the accesses that matters are bound. With others the run is rated as one
    /// whose threads the kernel moves: that a few are bound does not keep it from that.
    pub fn binds(&self, found: &Found) -> bool {
        let roles = found.roles.iter().zip(&self.roles);
        let mut work = roles.filter(|(role, _)| role.share >= SMALL).peekable();
        work.peek().is_some() && work.all(|(_, (seats, _))| *seats != Seats::Left)
    }

    /// Whether some roles that matter are bound and others are not, or memory is on one node while threads are not
    /// bound: where the kernel lets these run decides then what is gained, and that is not known.
    pub fn is_partial(&self, found: &Found) -> bool {
        let is_bound = |(seats, _): &(Seats, RoleMemory)| *seats != Seats::Left;
        let is_on_one =
            |pages: &Option<SegmentPages>| matches!(pages, Some(SegmentPages::Prefer(_)));
        let depends = self.roles.iter().any(is_bound) || self.segments.iter().any(is_on_one);
        depends && !self.binds(found)
    }

    /// A PU for each thread: of roles that are left to the kernel that of `os`, of others the PU with the least
    /// accesses (ties: with the fewest threads, then the first) on a node of theirs.
    pub fn mapping(
        &self,
        found: &Found,
        profile: &Profile,
        machine: &Topology,
        os: &Mapping,
    ) -> Mapping {
        let mut pus = os.pu.clone();
        let mut load = vec![(0_u64, 0_u64); machine.pus().len()];
        let mut on_node = vec![0_u64; machine.nodes().len()];
        let threads = profile.threads();
        for (role, (seats, _)) in found.roles.iter().zip(&self.roles) {
            if *seats == Seats::Left {
                for thread in &role.threads {
                    let pu = &mut load[pus[thread.index()].index()];
                    *pu = (pu.0 + threads[thread.index()].accesses, pu.1 + 1);
                }
            }
        }
        for (role, (seats, _)) in found.roles.iter().zip(&self.roles) {
            let mut of_role = vec![0_u64; machine.nodes().len()];
            for thread in &role.threads {
                let one;
                let nodes: &[LogicalNode] = match seats {
                    Seats::Left => continue,
                    Seats::Any(nodes) => nodes,
                    Seats::Each(nodes) => {
                        let fewest = |node: &&LogicalNode| {
                            (of_role[node.index()], on_node[node.index()], node.0)
                        };
                        one = nodes.iter().min_by_key(fewest).copied();
                        one.as_slice()
                    }
                };
                let of_nodes = nodes
                    .iter()
                    .flat_map(|node| &machine.nodes()[node.index()].pus);
                let Some(&pu) = of_nodes.min_by_key(|pu: &&LogicalPu| (load[pu.index()], pu.0))
                else {
                    continue;
                };
                let node = machine.node_of(pu).index();
                of_role[node] += 1;
                on_node[node] += 1;
                let busy = &mut load[pu.index()];
                *busy = (busy.0 + threads[thread.index()].accesses, busy.1 + 1);
                pus[thread.index()] = pu;
            }
        }
        Mapping { pu: pus }
    }

    /// A node for each page that a policy places: the segment's, else that of the role which touches it first.
    pub fn placement(&self, found: &Found, profile: &Profile, machine: &Topology) -> Placement {
        let all = machine.nodes_with_pus();
        let pages = profile.pages().pages().iter().zip(&found.of_page);
        let node = pages.map(|(page, segment)| {
            if profile.is_in_page_cache(page) {
                return None;
            }
            let turn = |nodes: &[LogicalNode]| {
                let at = page.object_page % nodes.len().max(1) as u64;
                nodes.get(at as usize).copied()
            };
            let policy = segment.and_then(|segment| self.segments[segment].as_ref());
            if let Some(pages) = policy {
                return turn(pages.nodes());
            }
            let (_, memory) = &self.roles[found.of_thread[page.first_touch?.index()]];
            (*memory == RoleMemory::Interleave).then(|| turn(&all))?
        });
        Placement {
            node: node.collect(),
        }
    }
}
