//! Mapping, placement, and the plan that carries both to another run of the program.

use std::collections::HashMap;

pub use crate::flaw::{Flaw, OS_NODES};

use crate::conditions::DEAL;
use crate::flaw::flaw;
use crate::ids::{LogicalNode, LogicalPu, OsNode, OsPu};
use crate::marks::MarkPlace;
use crate::profile::ObjectKind;
use crate::roles::RolesPlan;

/// Threads to PUs: `pu[t]` is where thread `t` runs (logical index).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// By thread.
    pub pu: Vec<LogicalPu>,
}

impl Mapping {
    /// `threads` threads bound in the order of their creation, in even blocks over `pus` PUs: see [`block`].
    #[must_use]
    pub fn blocks(threads: usize, pus: usize) -> Self {
        let pu = (0..threads).map(|thread| LogicalPu::from_index(block(thread, threads, pus)));
        Self { pu: pu.collect() }
    }
}

/// The place (PU or node, from 0) of a thread that is `pinned`: of `threads` threads in order, each of `places` places
/// takes one block of neighbours, and blocks differ by one thread at most.
#[must_use]
pub fn block(thread: usize, threads: usize, places: usize) -> usize {
    thread * places / threads.max(1)
}

/// Pages to NUMA nodes: `node[p]` for the p-th page of a [`crate::PageUsage`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// By page index; `None` leaves the page to the kernel (first touch).
    pub node: Vec<Option<LogicalNode>>,
}

/// The identity of an object, equal in other runs of the same program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Kind of memory.
    pub kind: ObjectKind,
    /// File and section, mapped file, call site, or stack owner.
    pub name: String,
    /// Stable path of the creating (or owning) thread.
    pub creator: Option<String>,
    /// Size in bytes.
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

/// A range of consecutive pages of one object on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PagePlan {
    /// Index into [`Plan::objects`].
    pub object: u32,
    /// First page within the object (page 0 holds the object's first byte).
    pub first_page: u64,
    /// Number of pages.
    pub pages: u64,
    /// The node, by position in the topology.
    pub node: LogicalNode,
    /// The same node by the kernel's number.
    pub os_node: OsNode,
}

/// A later change of the mapping or placement while the program runs.
#[derive(Clone, Debug, PartialEq)]
pub struct PhasePlan {
    /// Time of the change, as a share (0..1) of the recorded run's clock.
    pub at: f64,
    /// The pass of a mark at which a native run makes the change; `None` if no mark is near.
    pub trigger: Option<Trigger>,
    /// What the change is predicted to gain and to cost, if it was predicted.
    pub predicted: Option<PredictedMove>,
    /// Threads to move.
    pub threads: Vec<ThreadPlan>,
    /// Pages to move.
    pub pages: Vec<PagePlan>,
}

/// The pass of a mark at which a change is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// The place.
    pub place: MarkPlace,
    /// The how-many-eth pass by any thread of the program's first process, from 1.
    pub occurrence: u64,
    /// The change is made again at each further pass of this number; `None`: once.
    pub every: Option<u64>,
}

impl Trigger {
    /// The first pass after `passed` ones at which the change is made; `None` after the last.
    #[must_use]
    pub fn after(&self, passed: u64) -> Option<u64> {
        if passed < self.occurrence {
            return Some(self.occurrence);
        }
        let every = self.every?.max(1);
        let done = (passed - self.occurrence) / every + 1;
        every.checked_mul(done)?.checked_add(self.occurrence)
    }
}

/// The prediction for a later change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PredictedMove {
    /// Time gained until the next phase, in seconds.
    pub gain_s: f64,
    /// Time that the moves take, in seconds.
    pub cost_s: f64,
}

/// The amounts a policy worked with, and its predictions.
#[derive(Clone, Debug, PartialEq)]
pub struct Predicted {
    /// Sum over unordered pairs of amount x distance (hop-weighted cost).
    pub cost: f64,
    /// Amount exchanged between threads on different NUMA nodes.
    pub remote: f64,
    /// Amount exchanged in total.
    pub total: f64,
    /// Largest node's share of the communication load over the mean share, at least 1.
    pub node_imbalance: f64,
    /// Accesses beyond private caches to pages on a node that is not the accessing thread's.
    pub remote_accesses: u64,
    /// Accesses beyond private caches in total.
    pub accesses: u64,
}

/// The policies that made a plan, with everything needed to reproduce it.
#[derive(Clone, Debug, PartialEq)]
pub struct Provenance {
    /// Thread policy's name.
    pub thread_policy: String,
    /// Page policy's name.
    pub page_policy: String,
    /// Parameters as `name=value`, including the seed.
    pub parameters: Vec<(String, String)>,
    /// The recorded command.
    pub command: Vec<String>,
    /// Tool version.
    pub tool: String,
    /// The recorded environment, as in [`crate::conditions::Conditions`]; `None` if it is not known.
    pub environment: Option<Vec<(String, String)>>,
    /// Threads of the recording that were left out on purpose, by path.
    pub left_out: Vec<String>,
}

impl Provenance {
    /// Whether the loops of the recorded program were dealt by node, so that a run under the plan has to do so too.
    #[must_use]
    pub fn is_dealt(&self) -> bool {
        let recorded = self.environment.iter().flatten();
        recorded.into_iter().any(|(name, _)| name == DEAL)
    }
}

/// Where threads and pages should be: made for one machine, applicable to other runs of the program.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Name or synthetic string of the machine.
    pub machine: String,
    /// Digest of the topology the plan was made for.
    pub fingerprint: String,
    /// How the plan came to be.
    pub provenance: Provenance,
    /// The policies' predictions for it.
    pub predicted: Predicted,
    /// Bytes per page, for all page numbers and counts below.
    pub page_size: u64,
    /// Threads, by ascending index in the profile.
    pub threads: Vec<ThreadPlan>,
    /// Objects that `pages` refers to.
    pub objects: Vec<ObjectKey>,
    /// Page ranges, by object and first page.
    pub pages: Vec<PagePlan>,
    /// Later moves, by ascending `at`.
    pub schedule: Vec<PhasePlan>,
    /// Roles and named memory, in plans by role.
    pub roles: RolesPlan,
}

/// Valid page sizes of a profile or plan, in bytes: from a sector to the largest page of any machine.
pub const PAGE_SIZES: std::ops::RangeInclusive<u64> = 1 << 9..=1 << 34;

impl Predicted {
    fn check(&self) -> Result<(), Flaw> {
        for (name, value) in [
            ("cost", self.cost),
            ("remote", self.remote),
            ("total", self.total),
            ("node_imbalance", self.node_imbalance),
        ] {
            if !(value.is_finite() && value >= 0.0) {
                return flaw(format!("predicted.{name}"), value, "a number from 0");
            }
        }
        Ok(())
    }

    /// Predictions for a plan about which nothing is known: no traffic, a balanced machine.
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
    /// An empty plan for a machine with this name and fingerprint, with 4 KiB pages: a base for plans
    /// made without a policy.
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
                environment: None,
                left_out: Vec::new(),
            },
            predicted: Predicted::nothing(),
            page_size: 4096,
            threads: Vec::new(),
            objects: Vec::new(),
            pages: Vec::new(),
            schedule: Vec::new(),
            roles: RolesPlan::default(),
        }
    }

    /// Checks for values that cannot be applied: a thread named twice, a page with two nodes, numbers beyond
    /// what the kernel or an address can hold.
    ///
    /// # Errors
    /// The first [`Flaw`].
    pub fn check(&self) -> Result<(), Flaw> {
        if !self.page_size.is_power_of_two() || !PAGE_SIZES.contains(&self.page_size) {
            let expected = "a power of two from 512 bytes to 16 GiB";
            return flaw("page_size_bytes", self.page_size, expected);
        }
        self.predicted.check()?;
        self.roles.check()?;
        check_threads("", &self.threads)?;
        self.check_pages("", &self.pages)?;
        let mut last = 0.0;
        for (number, phase) in self.schedule.iter().enumerate() {
            let place = format!("schedule[{number}]");
            if !(last..=1.0).contains(&phase.at) {
                let expected = format!("a share from {last} to 1");
                return flaw(format!("{place}.at"), phase.at, expected);
            }
            last = phase.at;
            if let Some(trigger) = &phase.trigger {
                for (name, value) in [
                    ("occurrence", trigger.occurrence),
                    ("every", trigger.every.unwrap_or(1)),
                ] {
                    if value == 0 {
                        return flaw(format!("{place}.mark.{name}"), value, "a number from 1");
                    }
                }
            }
            if let Some(PredictedMove { gain_s, cost_s }) = phase.predicted {
                for (name, value) in [("gain_s", gain_s), ("cost_s", cost_s)] {
                    if !(value.is_finite() && value >= 0.0) {
                        return flaw(format!("{place}.{name}"), value, "a number from 0");
                    }
                }
            }
            check_threads(&format!("{place}."), &phase.threads)?;
            self.check_pages(&format!("{place}."), &phase.pages)?;
        }
        Ok(())
    }

    fn check_pages(&self, prefix: &str, pages: &[PagePlan]) -> Result<(), Flaw> {
        let place = |at: usize| format!("{prefix}pages[{at}]");
        for (at, run) in pages.iter().enumerate() {
            if run.object as usize >= self.objects.len() {
                let expected = format!("a number below {}", self.objects.len());
                return flaw(place(at) + ".object", run.object, expected);
            }
            if run.os_node.0 >= OS_NODES {
                let expected = format!("a number below {OS_NODES}");
                return flaw(place(at) + ".os_node", run.os_node.0, expected);
            }
            let bytes = run.first_page.checked_add(run.pages);
            let bytes = bytes.and_then(|end| end.checked_mul(self.page_size));
            if bytes.is_none() {
                let found = format!("{} pages from page {}", run.pages, run.first_page);
                return flaw(place(at), found, "a range within 64-bit addresses");
            }
        }
        let mut order: Vec<usize> = (0..pages.len()).collect();
        order.sort_by_key(|&at| (pages[at].object, pages[at].first_page));
        for pair in order.windows(2) {
            let (one, other) = (&pages[pair[0]], &pages[pair[1]]);
            if one.object == other.object && other.first_page < one.first_page + one.pages {
                let found = format!("page {} of object {}", other.first_page, other.object);
                let expected = format!("a page that {} does not have", place(pair[0]));
                return flaw(place(pair[1]), found, expected);
            }
        }
        Ok(())
    }
}

fn check_threads(prefix: &str, threads: &[ThreadPlan]) -> Result<(), Flaw> {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    for (at, thread) in threads.iter().enumerate() {
        let place = format!("{prefix}threads[{at}].path");
        if thread.path.is_empty() {
            return flaw(place, "\"\"", "the path of a thread, such as 0.1");
        }
        if let Some(first) = seen.insert(&thread.path, at) {
            let found = format!("{:?} again", thread.path);
            let expected = format!("a path that {prefix}threads[{first}] does not have");
            return flaw(place, found, expected);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::marks::MarkKind;

    #[test]
    fn pinned_threads_are_in_order_and_in_even_blocks() {
        let pus = |threads| -> Vec<u32> {
            let mapping = Mapping::blocks(threads, 8);
            mapping.pu.iter().map(|pu| pu.0).collect()
        };
        assert_eq!(pus(8), [0, 1, 2, 3, 4, 5, 6, 7]);
        // Fewer threads than PUs are spread over all of them; more share them.
        assert_eq!(pus(4), [0, 2, 4, 6]);
        assert_eq!(pus(1), [0]);
        assert_eq!(pus(16), [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7]);
        assert_eq!(pus(0), [0; 0]);
    }

    #[test]
    fn blocks_of_pus_lie_in_blocks_of_equal_nodes() {
        for (threads, nodes, per_node) in (1..20).flat_map(|t| [(t, 4, 2), (t, 2, 3), (t, 3, 4)]) {
            for (thread, pu) in Mapping::blocks(threads, nodes * per_node)
                .pu
                .iter()
                .enumerate()
            {
                assert_eq!(pu.index() / per_node, block(thread, threads, nodes));
            }
        }
    }

    #[test]
    fn a_trigger_comes_once_or_periodically() {
        let once = Trigger {
            place: MarkPlace {
                kind: MarkKind::Region,
                name: "solve._omp_fn.0".to_owned(),
            },
            occurrence: 10,
            every: None,
        };
        assert_eq!(
            [0, 9, 10, 11].map(|n| once.after(n)),
            [Some(10), Some(10), None, None]
        );
        let periodic = Trigger {
            every: Some(2),
            ..once
        };
        let after = [0, 10, 11, 12, 13].map(|n| periodic.after(n));
        assert_eq!(after, [10, 12, 12, 14, 14].map(Some));
        assert_eq!(periodic.after(u64::MAX), None);
    }
}
