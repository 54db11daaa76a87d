//! Predicts figures for each way to run the program: threads left to the kernel, threads bound in order, threads mapped
//! by a policy, pages placed by a policy.
//!
//! Policies are not part of this crate: the caller evaluates them and passes their answers as [`Candidates`]. So the
//! same figures describe the program as it is and the recommendations.
//!
//! **Threads that are not bound.** The kernel moves them between nodes, and their pages stay. The model assumes that a
//! thread is equally likely to be on any node at each access, also at the first touch of a page; then an access is
//! local with probability 1/N, and two of T threads are on one node as often as under an arbitrary mapping. A thread
//! that works alone, while the others wait, is not moved: in the slices where it does, it has the figures of bound
//! threads. The model is a lower limit: threads that the kernel leaves in place have the figures of bound threads.
//! Measured values lie between the two (`docs/metrics.md`), nearer to 1/N the more often threads sleep and wake.

use numaloc_model::profile::Profile;
use numaloc_model::{CommMatrix, Layer, LogicalNode, PageUsage, Placement};

use crate::assignment::NodeAssignment;
use crate::mapping_cost::{imbalance, remote_share};
use crate::pages::{PageMetrics, first_touch};

/// A policy's answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate<T> {
    /// The policy's name, as `--threads` or `--pages` takes it.
    pub policy: String,
    /// The policy's answer.
    pub answer: T,
}

/// Answers of policies for this run on this machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Candidates {
    /// Nodes of the threads, by thread policy.
    pub mappings: Vec<Candidate<NodeAssignment>>,
    /// Nodes of the pages with threads bound in order, by page policy.
    pub placements: Vec<Candidate<Placement>>,
    /// How long each way takes, if the caller has a model of time for this run.
    pub times: Option<Times>,
}

/// Modelled seconds of the ways to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Times {
    /// Share by which the ratio of two times may be off: a smaller gain is none.
    pub error: f64,
    /// Share by which two ways may differ and count as equally good.
    pub tie: f64,
    /// Threads where the kernel starts them, pages by first touch.
    pub as_it_is: f64,
    /// Threads bound in the order of their creation, pages by first touch.
    pub bound: f64,
    /// By thread policy of [`Candidates::mappings`], pages by first touch.
    pub mapped: Vec<f64>,
    /// By page policy of [`Candidates::placements`], threads bound in order.
    pub placed: Vec<f64>,
    /// A transfer of a line between two cores: least, mean over the nodes, most.
    pub transfer_s: [f64; 3],
}

/// A way to run the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// Threads placed by the kernel, pages by first touch.
    Free,
    /// Threads bound in the order of their creation, pages by first touch.
    Bound,
    /// Threads by this policy, pages by first touch.
    Mapped(String),
    /// Threads bound in the order of their creation, pages by this policy.
    Placed(String),
}

impl Way {
    /// Text for the user.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::Free => "threads not bound".to_owned(),
            Self::Bound => "threads bound in order".to_owned(),
            Self::Mapped(policy) => format!("threads by {policy}"),
            Self::Placed(policy) => format!("bound, pages by {policy}"),
        }
    }

    /// Stable name in JSON.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Free => "unbound",
            Self::Bound => "pinned",
            Self::Mapped(_) => "mapped",
            Self::Placed(_) => "placed",
        }
    }

    /// The policy involved, if any.
    #[must_use]
    pub fn policy(&self) -> Option<&str> {
        match self {
            Self::Free | Self::Bound => None,
            Self::Mapped(policy) | Self::Placed(policy) => Some(policy),
        }
    }
}

/// Predicted figures of a way to run the program. Shares are 0..=1.
#[derive(Clone, Debug, PartialEq)]
pub struct Outlook {
    /// The way.
    pub way: Way,
    /// Share of the communication between nodes; 0 without communication.
    pub remote: f64,
    /// Communication load of the busiest node over the mean; `None` if the model assigns no nodes to threads.
    pub busiest: Option<f64>,
    /// Share of the page accesses beyond private caches that are local; `None` without page use.
    pub local: Option<f64>,
    /// `B_acc` of the same accesses.
    pub balance: Option<f64>,
    /// Accesses of the same kind that the busiest node's memory serves, over the mean of the nodes that threads can run
    /// on.
    pub controller: Option<f64>,
}

/// Words of 8 bytes in a line of 64.
const WORDS_OF_A_LINE: f64 = 8.0;

/// Input of the computation.
pub(crate) struct Scene<'a> {
    /// Communication events, as recorded.
    pub events: &'a CommMatrix,
    /// Their layer.
    pub layer: Layer,
    /// Page accesses beyond private caches.
    pub beyond: &'a PageUsage,
    /// Nodes that threads can run on.
    pub homes: &'a [LogicalNode],
    /// Share of each thread's accesses in slices where it alone works; empty if slices do not show it.
    pub alone: &'a [f64],
}

impl<'a> Scene<'a> {
    /// Remote share of the communication under an arbitrary mapping: the mean over all mappings. Two threads of T are
    /// on one node with probability (s-1)/(T-1), s = T/N threads on each node.
    pub fn arbitrary(&self) -> f64 {
        let (threads, nodes) = (self.events.threads() as f64, self.homes.len() as f64);
        if threads > 1.0 {
            1.0 - ((threads / nodes) - 1.0).max(0.0) / (threads - 1.0)
        } else {
            0.0
        }
    }

    /// Threads that are not bound, by the model of the module documentation. Bound, they would be on the nodes of
    /// `bound`.
    pub fn free(&self, bound: &NodeAssignment) -> Outlook {
        Outlook {
            way: Way::Free,
            remote: if self.events.stored_cells() > 0 {
                self.arbitrary()
            } else {
                0.0
            },
            busiest: None,
            local: self.free_local(bound),
            balance: None,
            controller: None,
        }
    }

    fn free_local(&self, bound: &NodeAssignment) -> Option<f64> {
        let by_chance = 1.0 / self.homes.len().max(1) as f64;
        let (mut local, mut all) = (0.0, 0.0);
        for page in self.beyond.pages() {
            let home = page.first_touch.map(|t| bound.node(t.index()));
            for access in self.beyond.accesses(page) {
                let thread = access.thread.index();
                let alone = self.alone.get(thread).copied().unwrap_or(0.0);
                let if_bound = home.map_or(by_chance, |home| {
                    f64::from(u8::from(home == bound.node(thread)))
                });
                let accesses = access.total() as f64;
                all += accesses;
                local += accesses * (alone * if_bound + (1.0 - alone) * by_chance);
            }
        }
        (all > 0.0).then(|| local / all)
    }

    /// Threads on these nodes, pages by first touch.
    pub fn mapped(&self, way: Way, assignment: &NodeAssignment) -> Outlook {
        let touched = first_touch(self.beyond, assignment);
        self.placed(way, assignment, &touched)
    }

    /// Threads and pages on these nodes.
    pub fn placed(&self, way: Way, assignment: &NodeAssignment, placement: &Placement) -> Outlook {
        let pages = PageMetrics::of(self.beyond, assignment, placement);
        Outlook {
            way,
            remote: remote_share(self.events, self.layer, assignment),
            busiest: Some(self.busiest(assignment)),
            local: pages.local_share,
            balance: pages.access_balance,
            controller: pages
                .local_share
                .map(|_| self.busiest_controller(&pages.node_accesses)),
        }
    }

    /// Local share under first touch if a store misses once per line, as in a sweep; loads count fully. A profile does
    /// not show which programs sweep; a conclusion must hold under both assumptions.
    pub fn local_if_stores_sweep(&self, assignment: &NodeAssignment) -> Option<f64> {
        let (mut local, mut all) = (0.0, 0.0);
        for page in self.beyond.pages() {
            let Some(home) = page.first_touch.map(|t| assignment.node(t.index())) else {
                continue;
            };
            for access in self.beyond.accesses(page) {
                let misses = access.reads as f64 + access.writes as f64 / WORDS_OF_A_LINE;
                all += misses;
                if assignment.node(access.thread.index()) == home {
                    local += misses;
                }
            }
        }
        (all > 0.0).then(|| local / all)
    }

    /// Largest load of a node's memory over the mean of the nodes that threads can run on.
    fn busiest_controller(&self, by_node: &[u64]) -> f64 {
        let all: u64 = by_node.iter().sum();
        let most = by_node.iter().max().copied().unwrap_or(0);
        most as f64 * self.homes.len() as f64 / all.max(1) as f64
    }

    /// Load of each node that threads can run on: communication sent and received by its threads.
    fn busiest(&self, assignment: &NodeAssignment) -> f64 {
        let mut loads = vec![0.0; assignment.nodes];
        for (src, dst, amount) in self.events.cells() {
            loads[assignment.node(src)] += amount;
            loads[assignment.node(dst)] += amount;
        }
        imbalance(&assignment.of_homes(&loads))
    }
}

/// Number of threads with at least a hundredth of the busiest one's accesses: those that the kernel distributes.
pub(crate) fn working_threads(profile: &Profile) -> usize {
    let most = profile.threads().iter().map(|t| t.accesses).max();
    let most = most.unwrap_or(0);
    let works = |accesses: u64| accesses > 0 && accesses >= most / 100;
    let working = profile
        .threads()
        .iter()
        .filter(|t| works(t.accesses))
        .count();
    // A bare matrix has no accesses: all of its threads count.
    if most == 0 {
        profile.threads().len()
    } else {
        working
    }
}

/// Share of each thread's accesses in slices where no other thread does a hundredth of its work.
pub(crate) fn alone(profile: &Profile) -> Vec<f64> {
    let mut shares = vec![(0u64, 0u64); profile.threads().len()];
    let rows = profile.accesses_by_slice();
    for slice in rows.chunk_by(|a, b| a.slice == b.slice) {
        let most = slice.iter().map(|row| row.accesses).max().unwrap_or(0);
        let working = slice.iter().filter(|row| row.accesses > most / 100).count();
        for row in slice {
            let (alone, all) = &mut shares[row.thread.index()];
            *all += row.accesses;
            if working == 1 && row.accesses == most {
                *alone += row.accesses;
            }
        }
    }
    let share = |(alone, all): (u64, u64)| alone as f64 / all.max(1) as f64;
    shares.into_iter().map(share).collect()
}
