//! A worker: the state private to one thread of the runtime.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ptr;

use numaloc_task_queues::Credits;

use crate::abi::Guid;
use crate::arena::Lists;
use crate::block::Block;
use crate::edt::Edt;
use crate::runtime::Runtime;
use crate::scope::Scope;

/// No particular node.
pub const NO_NODE: u16 = u16::MAX;

/// Counters of a worker; statistics sum them over workers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Tasks run.
    pub tasks: u64,
    /// Tasks taken from another worker of the same node.
    pub stolen: u64,
    /// Tasks taken from a worker of another node.
    pub stolen_far: u64,
    /// Tasks that came through a node's inbox.
    pub inbox: u64,
    /// Tasks placed by the plan.
    pub planned: u64,
    /// Tasks whose node the plan leaves open.
    pub no_opinion: u64,
    /// Tasks not in the plan.
    pub unplanned: u64,
    /// Tasks that the plan placed on the node of their hint.
    pub hint_agrees: u64,
    /// Tasks with a hint that the plan placed.
    pub hint_compared: u64,
    /// Bytes of tasks' data blocks on the node where the task runs.
    pub local_bytes: u64,
    /// Bytes of tasks' data blocks on another node.
    pub remote_bytes: u64,
    /// Remote bytes, each weighted by its distance over the local distance.
    pub weighted_remote_bytes: f64,
}

impl Counters {
    pub(crate) fn add(&mut self, other: &Self) {
        self.tasks += other.tasks;
        self.stolen += other.stolen;
        self.stolen_far += other.stolen_far;
        self.inbox += other.inbox;
        self.planned += other.planned;
        self.no_opinion += other.no_opinion;
        self.unplanned += other.unplanned;
        self.hint_agrees += other.hint_agrees;
        self.hint_compared += other.hint_compared;
        self.local_bytes += other.local_bytes;
        self.remote_bytes += other.remote_bytes;
        self.weighted_remote_bytes += other.weighted_remote_bytes;
    }
}

/// A pending satisfaction.
pub struct Delivery {
    /// The event that fired.
    pub(crate) from: Guid,
    pub(crate) to: Guid,
    pub(crate) slot: u32,
    pub(crate) payload: Guid,
}

/// A worker; see the module documentation. Used only by its own thread.
pub struct Worker {
    pub(crate) rt: &'static Runtime,
    pub(crate) index: usize,
    pub(crate) node: u16,
    pub(crate) lists: Lists,
    /// The task being run; null between tasks.
    pub(crate) current: *mut Edt,
    /// The finish scope whose credits this worker holds.
    pub(crate) scope: *mut Scope,
    pub(crate) credits: Credits,
    pub(crate) outbox: VecDeque<Delivery>,
    pub(crate) delivering: bool,
    /// The event being delivered.
    pub(crate) cause: Guid,
    /// Blocks created by running tasks and not released yet; the current task's start at `created_from`.
    pub(crate) created: Vec<*mut Block>,
    pub(crate) created_from: usize,
    pub(crate) counters: Counters,
    pub(crate) random: u64,
    /// Recently used template names, by function and name pointer.
    pub(crate) names: Box<[(usize, usize, u32); 64]>,
    /// Ready tasks, if one thread runs them all.
    pub(crate) ready: VecDeque<*mut Edt>,
    /// Scratch list for stolen tasks.
    pub(crate) stolen: Vec<*mut Edt>,
    /// Scratch for the order in which a task's blocks are acquired.
    pub(crate) order: Vec<crate::block::Wanted>,
    /// Task-local storage of running tasks (ocrElsUserSet); rarely used.
    pub(crate) storage: Vec<(*mut Edt, Box<[Guid; 256]>)>,
    /// Nesting depth of tasks run inside waiting tasks (legacy calls).
    pub(crate) nesting: u32,
}

thread_local! {
    static CURRENT: Cell<*mut Worker> = const { Cell::new(ptr::null_mut()) };
}

impl Worker {
    /// Creates a worker with that index and node.
    pub fn new(rt: &'static Runtime, index: usize, node: u16) -> Box<Self> {
        Box::new(Self {
            rt,
            index,
            node,
            lists: Lists::default(),
            current: ptr::null_mut(),
            scope: ptr::null_mut(),
            credits: Credits::default(),
            outbox: VecDeque::new(),
            delivering: false,
            cause: Guid::NULL,
            created: Vec::new(),
            created_from: 0,
            counters: Counters::default(),
            random: rt.config.seed ^ (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            names: Box::new([(0, 0, 0); 64]),
            ready: VecDeque::new(),
            stolen: Vec::new(),
            order: Vec::new(),
            storage: Vec::new(),
            nesting: 0,
        })
    }

    /// The next pseudo-random number (xorshift), below `bound`.
    pub fn random_below(&mut self, bound: usize) -> usize {
        let mut x = self.random | 1;
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random = x;
        ((x >> 33) as usize * bound) >> 31
    }
}

/// Sets this thread's worker; null when the thread stops being one.
pub fn set_current(worker: *mut Worker) {
    CURRENT.with(|current| current.set(worker));
}

/// This thread's worker, or null.
#[inline]
pub fn current() -> *mut Worker {
    CURRENT.with(Cell::get)
}
