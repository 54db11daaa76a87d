//! The queues of a run, and which workers and nodes serve which others.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread::Thread;

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
    /// Number of sleeping workers.
    pub(crate) sleeping: AtomicU32,
    /// Number of awake workers that look for work.
    pub(crate) searching: AtomicU32,
}

/// The queues of a run.
pub struct Queues {
    /// Whether workers without work may steal from other nodes.
    pub(crate) steal_anywhere: AtomicBool,
    pub(crate) workers: Vec<WorkerQueue>,
    pub(crate) nodes: Vec<NodeQueue>,
    pub(crate) workers_of: Vec<Vec<usize>>,
    /// The node whose workers serve a node: itself, or the nearest one with workers.
    pub(crate) served_by: Vec<u16>,
    pub(crate) idle: Mutex<Idle>,
}

impl Queues {
    /// Whether workers without work may steal from other nodes.
    #[inline]
    pub fn steals_anywhere(&self) -> bool {
        self.steal_anywhere.load(Ordering::Relaxed)
    }

    /// Queues of `workers` workers, distributed over the machine's nodes.
    pub fn new(machine: &Machine, workers: usize, stealing: Stealing) -> Self {
        let spread = machine.spread(workers);
        let nodes = machine.nodes();
        let mut workers_of = vec![Vec::new(); nodes];
        for (at, &node) in spread.iter().enumerate() {
            workers_of[usize::from(node)].push(at);
        }
        Self {
            steal_anywhere: AtomicBool::new(stealing == Stealing::Any),
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
