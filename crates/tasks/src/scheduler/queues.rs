//! The queues of a run, and which workers and nodes serve which others.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread::Thread;

use numaloc_task_plan::{Patience, seconds_per_byte};
use numaloc_task_queues::{Deque, Inbox};

use super::idle::Idle;
use super::ready::Ready;
use crate::config::Stealing;
use crate::machine::Machine;

/// The part of a worker that other workers access.
pub struct WorkerQueue {
    pub(crate) deque: Deque<Ready>,
    pub(crate) node: u16,
    pub(crate) thread: OnceLock<Thread>,
    pub(crate) woken: AtomicBool,
}

/// The part of a node that all workers access.
#[derive(Default)]
pub struct NodeQueue {
    pub(crate) inbox: Inbox<Ready>,
    /// About how many tasks are in the inbox, never fewer: counted before they are pushed, and after they are taken.
    pub(crate) in_inbox: AtomicUsize,
    /// Number of sleeping workers.
    pub(crate) sleeping: AtomicU32,
    /// Number of awake workers that look for work.
    pub(crate) searching: AtomicU32,
}

/// No task has run whose data is known: far more than a task has.
const UNKNOWN: u64 = 1 << 50;

/// The queues of a run.
pub struct Queues {
    /// A [`Stealing`] as a number.
    stealing: AtomicU8,
    /// By (taker's node, node).
    patience: Vec<Patience>,
    /// Bytes of a task's blocks, lately; at first, more than a task has.
    bytes_per_task: AtomicU64,
    pub(crate) workers: Vec<WorkerQueue>,
    pub(crate) nodes: Vec<NodeQueue>,
    pub(crate) workers_of: Vec<Vec<usize>>,
    /// The node whose workers serve a node: itself, or the nearest one with workers.
    pub(crate) served_by: Vec<u16>,
    pub(crate) idle: Mutex<Idle>,
}

impl Queues {
    /// Which workers may steal from other nodes.
    #[inline]
    pub fn stealing(&self) -> Stealing {
        const NODE: u8 = Stealing::Node as u8;
        const SURPLUS: u8 = Stealing::Surplus as u8;
        match self.stealing.load(Ordering::Relaxed) {
            NODE => Stealing::Node,
            SURPLUS => Stealing::Surplus,
            _ => Stealing::Any,
        }
    }

    /// Changes which workers may steal from other nodes.
    pub fn set_stealing(&self, stealing: Stealing) {
        self.stealing.store(stealing as u8, Ordering::Relaxed);
    }

    /// Tasks that wait on `node` from which on a worker of node `by` may take one.
    #[inline]
    pub fn patience(&self, by: usize, node: usize) -> usize {
        let bytes = self.bytes_per_task.load(Ordering::Relaxed);
        self.patience[by * self.nodes.len() + node].tasks(bytes as f64)
    }

    /// How much longer a task with `bytes` of data takes where they are farthest, as a share of its time near them.
    pub fn longer(&self, bytes: f64) -> f64 {
        let all = self.patience.iter().map(|patience| patience.longer(bytes));
        all.fold(0.0, f64::max)
    }

    /// A task ran whose blocks have this many bytes: a sample.
    pub fn sample(&self, bytes: u64) {
        let before = self.bytes_per_task.load(Ordering::Relaxed);
        let now = match before {
            UNKNOWN => bytes,
            before => before - before / 8 + bytes / 8,
        };
        self.bytes_per_task.store(now, Ordering::Relaxed);
    }

    /// About how many tasks wait on a node.
    pub fn waiting(&self, node: usize) -> usize {
        let own = &self.workers_of[node];
        own.iter()
            .map(|&at| self.workers[at].deque.len())
            .sum::<usize>()
            + self.nodes[node].in_inbox.load(Ordering::Relaxed)
    }

    /// The node with most waiting tasks of those that workers of node `by` may take from because of that.
    pub fn with_surplus(&self, by: usize) -> Option<usize> {
        self.most_waiting(by, |node| self.waiting(node))
    }

    /// The same, with other numbers of waiting tasks.
    pub fn most_waiting(&self, by: usize, waiting: impl Fn(usize) -> usize) -> Option<usize> {
        (0..self.nodes.len())
            .filter(|&node| node != by)
            .map(|node| (waiting(node), node))
            .filter(|&(waiting, node)| waiting >= self.patience(by, node))
            .max_by_key(|&(waiting, node)| (waiting, std::cmp::Reverse(node)))
            .map(|(_, node)| node)
    }

    /// Queues of `workers` workers, distributed over the machine's nodes.
    pub fn new(machine: &Machine, workers: usize, stealing: Stealing) -> Self {
        let spread = machine.spread(workers);
        let nodes = machine.nodes();
        let cost = seconds_per_byte(machine.topology(), workers);
        let mut workers_of = vec![Vec::new(); nodes];
        for (at, &node) in spread.iter().enumerate() {
            workers_of[usize::from(node)].push(at);
        }
        Self {
            stealing: AtomicU8::new(stealing as u8),
            patience: (0..nodes * nodes)
                .map(|at| Patience {
                    workers: workers_of[at % nodes].len(),
                    near: cost[at % nodes * (nodes + 1)],
                    far: cost[at],
                })
                .collect(),
            bytes_per_task: AtomicU64::new(UNKNOWN),
            workers: spread
                .iter()
                .map(|&node| WorkerQueue {
                    deque: Deque::new(256),
                    node,
                    thread: OnceLock::new(),
                    woken: AtomicBool::new(false),
                })
                .collect(),
            nodes: (0..nodes).map(|_| NodeQueue::default()).collect(),
            served_by: (0..nodes as u16)
                .map(|node| nearest_with_workers(machine, &workers_of, node))
                .collect(),
            idle: Mutex::new(Idle::new(nodes, spread.len())),
            workers_of,
        }
    }
}

/// The node nearest to `node` that has workers: itself if it has any.
fn nearest_with_workers(machine: &Machine, workers_of: &[Vec<usize>], node: u16) -> u16 {
    let distance = |other| {
        if other == node {
            0.0
        } else {
            machine.distance(node, other)
        }
    };
    (0..machine.nodes() as u16)
        .filter(|&other| !workers_of[usize::from(other)].is_empty())
        .min_by(|&a, &b| distance(a).total_cmp(&distance(b)))
        .unwrap_or(0)
}
