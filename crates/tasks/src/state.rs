//! The state of a run: what all its workers share ([`Runtime`]), what is private to one of them ([`Worker`]), and what
//! the parts of the runtime need of those above them ([`Observer`], [`Tasks`]).
//!
//! These types refer to each other, so they are in one file. It has no behaviour beyond access to them.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize};

use numaloc_task_queues::Credits;

use crate::config::Config;
use crate::error::{Error, Result, RunError};
use crate::guid::Guid;
use crate::machine::Machine;
use crate::memory::Memory;
use crate::names::{Cache, Names};
use crate::objects::arena::{Arena, Lists};
use crate::objects::block::{Block, Wanted};
use crate::objects::delivery::Delivery;
use crate::objects::header::{Header, Kind};
use crate::objects::label::{Awaited, Maps};
use crate::objects::task::{Edt, Held, Scope};
use crate::objects::waits::Waits;
use crate::observe::stats::Counters;
use crate::plan::FlatPlan;
use crate::scheduler::fibres::Fibres;
use crate::scheduler::queues::Queues;
use crate::scheduler::ready::Ready;

/// What the workers of a run share.
pub struct Runtime {
    pub(crate) config: Config,
    pub(crate) machine: Machine,
    pub(crate) arena: Arena,
    pub(crate) memory: Memory,
    pub(crate) names: Names,
    pub(crate) plan: Option<FlatPlan>,
    /// Chosen when the run starts; `None`: nothing is recorded.
    pub(crate) observer: Option<Box<dyn Observer>>,
    pub(crate) tasks: &'static dyn Tasks,
    pub(crate) count_traffic: bool,
    pub(crate) queues: Queues,
    pub(crate) waits: Waits,
    /// Dependences on labels under which nothing exists yet.
    pub(crate) awaited: Awaited,
    /// Maps from tuples to labels.
    pub(crate) maps: Maps,
    pub(crate) simulated: bool,
    pub(crate) shutdown: AtomicBool,
    pub(crate) stop: AtomicBool,
    pub(crate) status: AtomicI32,
    pub(crate) complaints: AtomicU64,
    /// Only threads of the scheduler `tbb` are numbered as they come.
    #[cfg_attr(not(numaloc_tbb), allow(dead_code))]
    pub(crate) next_worker: AtomicUsize,
    /// Counters of each worker, by worker index.
    pub(crate) totals: Mutex<BTreeMap<usize, Counters>>,
    pub(crate) started: std::time::Instant,
}

/// Records what a program does, for a profile. All methods are called on the thread of the task in question, when the
/// fact is complete and before the program can see its effect.
pub(crate) trait Observer: Send + Sync {
    /// Task `edt` was created by `parent` (null: by the runtime), and nothing can reach it yet.
    fn task_created(&self, w: &Worker, parent: *mut Edt, edt: &mut Edt);
    /// A slot of `edt` was satisfied.
    fn slot_satisfied(&self, w: &Worker, edt: &Edt);
    /// An event is about to be satisfied; `counts`: it may need several satisfactions to fire.
    fn event_satisfied(&self, w: &Worker, event: Guid, counts: bool);
    /// `block` was created by `parent` (null: by the runtime) with a hint for node `hinted`.
    fn block_created(&self, parent: *mut Edt, block: &mut Block, hinted: u16);
    /// A task that holds its blocks is about to run on this thread.
    fn before_run(&self, w: &mut Worker, edt: *mut Edt);
    /// The task has run.
    fn after_run(&self, edt: &Edt);
    /// A task that counts in the scope at address `scope` has ended.
    fn task_left_scope(&self, scope: usize, edt: &Edt);
    /// All tasks of a scope have ended; `output` is about to be satisfied, and the scope's tasks count in `parent`.
    fn scope_done(&self, scope: usize, parent: usize, output: Guid);
    /// The run has ended.
    ///
    /// # Errors
    /// The record cannot be written.
    fn write(&self) -> std::result::Result<(), RunError>;
}

/// What the schedulers need of the tasks that they run, of which they know only the beginning ([`Ready`]).
pub(crate) trait Tasks: Sync {
    /// Runs a task on this thread to its end.
    ///
    /// # Safety
    /// `w` is this thread's worker, and no reference to it is in use; `task` is ready and owned by the caller.
    unsafe fn run(&self, w: *mut Worker, task: *mut Ready);
    /// A worker's own queue is empty; may make tasks ready.
    fn out_of_tasks(&self, w: &mut Worker);
    /// Calls `each` with the size and node of each block that a task holds, which is about to run on this thread.
    fn blocks(&self, w: &Worker, task: *mut Ready, each: &mut dyn FnMut(u64, Option<u16>));
    /// Whether an event has fired that a task waits for inside itself.
    #[cfg_attr(not(numaloc_tbb), allow(dead_code))]
    fn awaited_event_has_fired(&self, rt: &Runtime) -> bool;
    /// Nothing is ready and nothing runs: the end of the run, or a deadlock.
    fn quiescent(&self, rt: &Runtime);
    /// Nothing is ready and all running tasks wait inside themselves for what cannot occur: ends the process.
    fn stuck(&self, rt: &'static Runtime) -> !;
}

impl Runtime {
    /// Memory of the object a GUID refers to; not checked for being that object still.
    #[inline]
    pub(crate) fn object(&self, guid: Guid) -> Result<*mut Header> {
        self.arena.object(guid)
    }

    /// The live object of that kind behind a GUID; error `gone` if it is of another kind or no longer alive.
    #[inline]
    pub(crate) fn live(&self, guid: Guid, kind: Kind, gone: Error) -> Result<*mut Header> {
        self.arena.live(guid, kind, gone)
    }

    /// The plan, unless it was found not to fit.
    #[inline]
    pub(crate) fn plan(&self) -> Option<&FlatPlan> {
        self.plan.as_ref().filter(|plan| !plan.fit.dropped())
    }

    /// Publishes a worker's counters, replacing those it published before.
    pub(crate) fn publish_counters(&self, w: &Worker) {
        let mut totals = self.totals.lock().expect("no panic while locked");
        totals.insert(w.index, w.counters);
    }

    /// Reports why the run cannot continue or did not end well.
    pub(crate) fn report(&self, text: &str) {
        eprintln!("numaloc_ocr: {text}");
    }
}

/// The state private to one thread of the runtime, and used only by that thread.
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
    /// Blocks that the current task has created and not released yet.
    pub(crate) created: Vec<*mut Block>,
    pub(crate) counters: Counters,
    pub(crate) random: u64,
    pub(crate) names: Cache,
    /// Ready tasks, if one thread runs them all.
    pub(crate) ready: VecDeque<*mut Ready>,
    /// Scratch list for stolen tasks.
    pub(crate) stolen: Vec<*mut Ready>,
    /// Scratch for the order in which a task's blocks are acquired.
    pub(crate) order: Vec<Wanted>,
    /// Tasks that the current task has created and that may start when it ends.
    pub(crate) held: Vec<Held>,
    /// Task-local storage of running tasks; rarely used.
    pub(crate) storage: Vec<(*mut Edt, Box<[Guid; 256]>)>,
    /// Stacks of tasks that wait inside themselves.
    pub(crate) fibres: Fibres<Worker>,
}

thread_local! {
    static CURRENT: Cell<*mut Worker> = const { Cell::new(ptr::null_mut()) };
    static REPLAYING: Cell<*mut Worker> = const { Cell::new(ptr::null_mut()) };
}

impl Worker {
    /// Creates a worker with that index and node.
    pub(crate) fn new(rt: &'static Runtime, index: usize, node: u16) -> Box<Self> {
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
            counters: Counters::default(),
            random: rt.config.seed ^ (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            names: Cache::default(),
            ready: VecDeque::new(),
            stolen: Vec::new(),
            order: Vec::new(),
            held: Vec::new(),
            storage: Vec::new(),
            fibres: Fibres::default(),
        })
    }

    /// The next pseudo-random number (xorshift), below `bound`.
    pub(crate) fn random_below(&mut self, bound: usize) -> usize {
        let mut x = self.random | 1;
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random = x;
        ((x >> 33) as usize * bound) >> 31
    }

    /// The worker's number.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// The node that the worker runs on, numbered densely among nodes with PUs.
    #[must_use]
    pub fn node(&self) -> u16 {
        self.node
    }

    /// Number of nodes of the machine that have PUs.
    #[inline]
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.rt.machine.nodes()
    }

    /// Number of workers of the run.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.rt.queues.workers.len()
    }

    /// The current task's GUID; `None` between tasks.
    #[must_use]
    pub fn current_task(&self) -> Option<Guid> {
        // SAFETY: the current task is alive.
        (!self.current.is_null()).then(|| unsafe { self.rt.arena.guid(self.current.cast()) })
    }

    /// A value of the current task's local storage; `NULL_GUID` if it was not set.
    #[must_use]
    pub fn stored(&self, at: u8) -> Guid {
        let storage = self.storage.iter().find(|(edt, _)| *edt == self.current);
        storage.map_or(Guid::NULL, |(_, values)| values[usize::from(at)])
    }

    /// Sets a value of the current task's local storage.
    ///
    /// # Errors
    /// [`Error::NotNow`]: there is no current task.
    pub fn store(&mut self, at: u8, value: Guid) -> Result<()> {
        if self.current.is_null() {
            return Err(Error::NotNow);
        }
        let known = self
            .storage
            .iter()
            .position(|(edt, _)| *edt == self.current);
        let place = known.unwrap_or_else(|| {
            self.storage
                .push((self.current, Box::new([Guid::NULL; 256])));
            self.storage.len() - 1
        });
        self.storage[place].1[usize::from(at)] = value;
        Ok(())
    }

    /// Records that the program asked for the end of the run.
    pub fn shut_down(&self) {
        self.rt
            .shutdown
            .store(true, std::sync::atomic::Ordering::SeqCst);
    }
}

/// Sets this thread's worker; null when the thread stops being one.
pub(crate) fn set_current(worker: *mut Worker) {
    CURRENT.set(worker);
}

/// This thread's worker; null if the thread is none, and during a replay, in which calls must have no effect.
#[inline]
pub fn current() -> *mut Worker {
    CURRENT.get()
}

/// As [`current`], after a task may have changed its thread: the compiler must not know the address of the former
/// thread's variable.
#[inline(never)]
pub fn current_again() -> *mut Worker {
    CURRENT.get()
}

/// The worker whose task is being replayed on this thread, or null.
pub fn replaying() -> *mut Worker {
    REPLAYING.get()
}

/// Runs `body`, during which this thread's worker is [`replaying`] and not [`current`].
pub(crate) fn replay<T>(body: impl FnOnce() -> T) -> T {
    let w = CURRENT.replace(ptr::null_mut());
    REPLAYING.set(w);
    let result = body();
    REPLAYING.set(ptr::null_mut());
    CURRENT.set(w);
    result
}
