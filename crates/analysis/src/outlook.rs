//! Predicts figures for each way to run the program: threads left to the kernel, threads bound in order, threads mapped
//! by a policy, pages placed by a policy.
//!
//! Policies are not part of this crate: the caller evaluates them and passes their answers as [`Candidates`]. So the
//! same figures describe the program as it is and the recommendations. [`crate::local`] says which accesses are local.

use numaloc_model::profile::Profile;
use numaloc_model::{CodePlace, CommMatrix, Layer, LogicalNode, Named, Placement, ThreadIdx};

use crate::assignment::NodeAssignment;
use crate::local::Accesses;
use crate::mapping_cost::{imbalance, remote_share};
use crate::pages::{PageMetrics, first_touch};
use crate::remark::Remark;

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
    /// The plan that the caller recommends, if it has such a model.
    pub plan: Option<Recommended>,
    /// Changes of the program that save more than the error of such a model, the best first; each on top of those
    /// before it.
    pub changes: Vec<SourceChange>,
    /// Whether they were simulated. Then they are all that is worth it, those that numaloc makes among them.
    pub is_simulated: bool,
    /// Seconds without any other node's memory, queue or line, if it has such a model.
    pub bound_s: Option<f64>,
    /// Remarks about memory that save more than the error of such a model.
    pub memory: Vec<Remark>,
}

/// What a change is made to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeOf {
    /// Memory: who initialises it, where its pages are.
    Memory,
    /// Lines that threads contend for.
    Lines,
    /// Threads or all pages: a plan makes it.
    Run,
}

/// A change of the program, and what it saves.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceChange {
    /// Stable name in JSON: `touch_by_users`.
    pub name: &'static str,
    /// What it is made to.
    pub of: ChangeOf,
    /// What to do, in a clause.
    pub headline: &'static str,
    /// Lines that show how to write it.
    pub write: Vec<String>,
    /// What its worth assumes, in a clause.
    pub assumes: &'static str,
    /// What it is made to, the most used first.
    pub memory: Vec<Named>,
    /// The thread that initialises them.
    pub first: ThreadIdx,
    /// Where it does, as far as known.
    pub begins: Vec<CodePlace>,
    /// Where they are used most, if known.
    pub used: Option<CodePlace>,
    /// Number of threads that use them.
    pub threads: usize,
    /// Number of their pages.
    pub pages: usize,
    /// Bytes of memory that it takes in addition.
    pub takes: u64,
    /// Whether it saves time only together with another one, which comes later.
    pub needs_next: bool,
    /// Seconds of the run before and after it.
    pub before: f64,
    /// See `before`.
    pub after: f64,
    /// Share by which the ratio of the two may be off.
    pub error: f64,
}

/// The plan that `numaloc plan` makes without options, which takes least time by the caller's model, and the program as
/// it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Recommended {
    /// Thread policy.
    pub threads: String,
    /// Page policy.
    pub pages: String,
    /// Seconds of the program as it is.
    pub as_it_is: f64,
    /// Seconds with the plan.
    pub with_plan: f64,
    /// Share by which the ratio of the two may be off.
    pub error: f64,
    /// Share of the lines from memory that come from another node: as it is, and with the plan.
    pub remote: [f64; 2],
    /// What the plan saves most of, in words: `the busiest memory controller`.
    pub mostly: &'static str,
    /// Of a plan that maps ranks to the hosts of a cluster.
    pub of_ranks: Option<OfRanks>,
}

/// What a mapping of ranks to hosts changes.
#[derive(Clone, Debug, PartialEq)]
pub struct OfRanks {
    /// What is wrong as it is, in a clause.
    pub what: String,
    /// Least and most seconds that it saves.
    pub between: [f64; 2],
    /// Whether that is more than nothing for sure.
    pub saves: bool,
}

impl Recommended {
    /// Whether it is faster than the program as it is by more than the error.
    #[must_use]
    pub fn saves(&self) -> bool {
        match &self.of_ranks {
            Some(ranks) => ranks.saves,
            None => self.as_it_is > self.with_plan * (1.0 + self.error),
        }
    }
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
    /// The same without waiting for lines that threads contend for.
    pub apart: f64,
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

/// Input of the computation.
pub(crate) struct Scene<'a> {
    /// Communication events, as recorded.
    pub events: &'a CommMatrix,
    /// Their layer.
    pub layer: Layer,
    /// Page accesses.
    pub accesses: Accesses<'a>,
    /// Nodes that threads can run on.
    pub homes: &'a [LogicalNode],
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

    /// Threads that are not bound, by the model of [`crate::local`]. Bound, they would be on the nodes of `bound`.
    pub fn free(&self, bound: &NodeAssignment) -> Outlook {
        Outlook {
            way: Way::Free,
            remote: if self.events.stored_cells() > 0 {
                self.arbitrary()
            } else {
                0.0
            },
            busiest: None,
            local: self.accesses.unbound(nodes(bound)).local_share(),
            balance: None,
            controller: None,
        }
    }

    /// Threads on these nodes, pages by first touch.
    pub fn mapped(&self, way: Way, assignment: &NodeAssignment) -> Outlook {
        let touched = first_touch(self.accesses.beyond, assignment);
        self.placed(way, assignment, &touched)
    }

    /// Threads and pages on these nodes.
    pub fn placed(&self, way: Way, assignment: &NodeAssignment, placement: &Placement) -> Outlook {
        let pages = PageMetrics::of(self.accesses.beyond, assignment, placement);
        Outlook {
            way,
            remote: remote_share(self.events, self.layer, assignment),
            busiest: Some(self.busiest(assignment)),
            local: self
                .accesses
                .bound(nodes(assignment), placement)
                .local_share(),
            balance: pages.access_balance,
            controller: pages
                .local_share
                .map(|_| self.busiest_controller(&pages.node_accesses)),
        }
    }

    /// Local share under first touch if a store misses once per line.
    pub fn local_if_stores_sweep(&self, assignment: &NodeAssignment) -> Option<f64> {
        self.accesses
            .if_stores_sweep(nodes(assignment))
            .local_share()
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

/// The node of each thread.
fn nodes(assignment: &NodeAssignment) -> impl Fn(ThreadIdx) -> LogicalNode {
    |thread| assignment.of_thread[thread.index()]
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
