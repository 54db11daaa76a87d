//! A worker: what one thread of the runtime keeps to itself.

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

/// No node in particular.
pub const NO_NODE: u16 = u16::MAX;

/// What a worker did. Summed over workers in the statistics.
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
    /// Tasks the plan placed.
    pub planned: u64,
    /// Tasks the plan knows but has no opinion about.
    pub no_opinion: u64,
    /// Tasks the plan does not know.
    pub unplanned: u64,
    /// Tasks a plan placed on the node where a hint would have put them.
    pub hint_agrees: u64,
    /// Tasks with a hint that a plan also placed.
    pub hint_compared: u64,
    /// Bytes of data blocks handed to tasks on the block's node.
    pub local_bytes: u64,
    /// Bytes of data blocks handed to tasks on another node.
    pub remote_bytes: u64,
    /// The remote ones, each byte times its distance over the local distance.
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

/// A satisfaction on its way.
pub struct Delivery {
    /// The event that fired.
    pub(crate) from: Guid,
    pub(crate) to: Guid,
    pub(crate) slot: u32,
    pub(crate) payload: Guid,
}

/// A worker; see the module's text. Used only by its own thread.
pub struct Worker {
    pub(crate) rt: &'static Runtime,
    pub(crate) index: usize,
    pub(crate) node: u16,
    pub(crate) lists: Lists,
    /// The task being run; null between tasks.
    pub(crate) current: *mut Edt,
    /// The finish scope whose credits are at hand.
    pub(crate) scope: *mut Scope,
    pub(crate) credits: Credits,
    pub(crate) outbox: VecDeque<Delivery>,
    pub(crate) delivering: bool,
    /// The event whose firing is being delivered.
    pub(crate) cause: Guid,
    /// Blocks created by the tasks being run and not released yet; the current task's from `created_from`.
    pub(crate) created: Vec<*mut Block>,
    pub(crate) created_from: usize,
    pub(crate) counters: Counters,
    pub(crate) random: u64,
    /// Names of templates seen lately, by function and name pointer.
    pub(crate) names: Box<[(usize, usize, u32); 64]>,
    /// Ready tasks, where one thread runs them all.
    pub(crate) ready: VecDeque<*mut Edt>,
    /// Scratch for tasks on their way from another worker's queue.
    pub(crate) stolen: Vec<*mut Edt>,
    /// Scratch for the order in which a task's blocks are acquired.
    pub(crate) order: Vec<crate::block::Wanted>,
    /// What tasks being run keep for themselves (ocrElsUserSet); few do.
    pub(crate) storage: Vec<(*mut Edt, Box<[Guid; 256]>)>,
    /// Depth of tasks run inside tasks that wait (legacy calls).
    pub(crate) nesting: u32,
}

thread_local! {
    static CURRENT: Cell<*mut Worker> = const { Cell::new(ptr::null_mut()) };
}

impl Worker {
    /// A worker of that index and node.
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

/// Makes `worker` this thread's; null when the thread stops being one.
pub fn set_current(worker: *mut Worker) {
    CURRENT.with(|current| current.set(worker));
}

/// This thread's worker, or null.
#[inline]
pub fn current() -> *mut Worker {
    CURRENT.with(Cell::get)
}
