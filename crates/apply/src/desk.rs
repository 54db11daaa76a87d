//! Decides what to do when a thread starts or memory appears: looks it up in the plan and tells an
//! [`Actuator`]. Knows nothing of ptrace; tests run it against an actuator that only takes notes.
//!
//! Threads are here; [`memory`] knows which memory is which object of the plan, [`pages`] puts and checks their pages.

mod memory;
mod pages;

use numaloc_identity::{Creator, Orders, ThreadPath};
use numaloc_model::profile::ObjectKind;
use std::collections::{HashMap, HashSet};
use std::io;

use crate::book::Book;
use crate::tally::{Tally, ThreadState};

/// What changes the machine, or pretends to.
pub trait Actuator {
    /// Restricts a thread to PUs (kernel numbers).
    fn pin(&mut self, tid: i32, pus: &[u32]) -> io::Result<()>;
    /// The PUs a thread may run on.
    fn affinity(&mut self, tid: i32) -> io::Result<Vec<u32>>;
    /// Makes memory `(start, end, node)` of the stopped thread's process come from `node` from now on;
    /// 0 or an errno for each.
    fn bind(&mut self, ranges: &[(u64, u64, u32)]) -> Vec<i32>;
    /// Moves pages of a process that exist already; one node or negative errno each.
    fn relocate(&mut self, tgid: i32, pages: &[u64], nodes: &[i32]) -> io::Result<Vec<i32>>;
    /// Where pages of the process of thread `tid` are; one node or negative errno each.
    fn locate(&mut self, tid: i32, pages: &[u64]) -> io::Result<Vec<i32>>;
}

/// What the user asked for beside the plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Read back where every planned page is before it goes away.
    pub verify: bool,
    /// Overrule the program's own `sched_setaffinity`.
    pub enforce: bool,
}

/// An object of a plan in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Live {
    object: usize,
    base: u64,
    /// Where its memory is; beyond that it is gone.
    start: u64,
    end: u64,
}

/// An object found in a process: its index in the plan, its first byte, and where its memory is.
type Found = (usize, u64, (u64, u64));

#[derive(Clone, Debug, Default)]
struct Process {
    first: String,
    /// Objects of the plan seen so far.
    found: HashSet<usize>,
    /// How many of its planned mappings have not been.
    awaited: usize,
    threads: HashSet<i32>,
    orders: Orders,
    live: Vec<Live>,
    /// Anonymous mappings that a new thread may turn out to use as its stack.
    stacks: Vec<(u64, u64)>,
    heap: Option<(usize, u64, u64)>,
}

struct Thread {
    creator: Creator,
    tgid: i32,
    planned: Option<(usize, u32)>,
    own_affinity: bool,
}

impl Thread {
    /// The path of the next thread or process it makes.
    fn child(&mut self, same_process: bool) -> String {
        if same_process {
            self.creator.next_thread()
        } else {
            self.creator.next_process()
        }
    }
}

/// See the module.
pub struct Desk {
    book: Book,
    wishes: Wishes,
    allowed: Vec<u32>,
    threads: HashMap<i32, Thread>,
    processes: HashMap<i32, Process>,
    stack_sizes: HashSet<u64>,
    /// Paths of threads whose creation was reported and that have not stopped yet.
    announced: HashMap<i32, String>,
    /// Planned objects that mappings make, by the path of their process.
    mappings: HashMap<String, usize>,
    tally: Tally,
}

/// Whether an object comes from a call that maps memory.
fn is_mapped(kind: ObjectKind) -> bool {
    matches!(
        kind,
        ObjectKind::Mapping | ObjectKind::Shared | ObjectKind::Stack
    )
}

impl Desk {
    /// A desk for a plan; `allowed` are the PUs the program would have without a plan.
    pub fn new(book: Book, wishes: Wishes, allowed: Vec<u32>) -> Self {
        let stack_sizes = book
            .objects()
            .filter(|(_, key)| key.kind == ObjectKind::Stack)
            .map(|(_, key)| key.size)
            .collect();
        let mut mappings: HashMap<String, usize> = HashMap::new();
        for (_, key) in book.objects().filter(|(_, key)| is_mapped(key.kind)) {
            let process = ThreadPath::new(key.creator.as_deref().unwrap_or("0"))
                .process()
                .as_str();
            *mappings.entry(process.to_owned()).or_default() += 1;
        }
        Self {
            mappings,
            tally: Tally::new(&book),
            book,
            wishes,
            allowed,
            threads: HashMap::new(),
            processes: HashMap::new(),
            stack_sizes,
            announced: HashMap::new(),
        }
    }

    /// What has been done so far.
    pub fn tally(&mut self) -> &mut Tally {
        &mut self.tally
    }

    /// The end: what was done in all.
    pub fn into_tally(self) -> Tally {
        self.tally
    }

    /// The PUs the program believes to have.
    pub fn allowed(&self) -> &[u32] {
        &self.allowed
    }

    /// The process of a known thread.
    pub fn process_of(&self, tid: i32) -> Option<i32> {
        self.threads.get(&tid).map(|thread| thread.tgid)
    }

    /// The program's first thread.
    pub fn started(&mut self, tid: i32, act: &mut dyn Actuator) {
        let process = self.process("0".to_owned());
        self.processes.insert(tid, process);
        self.enter(tid, tid, Creator::new("0"), act);
    }

    /// `creator` is making `tid`. Names follow the order of these reports: the first stops of several new
    /// threads, of which [`Self::created`] tells, come in any order.
    pub fn announced(&mut self, creator: i32, tid: i32, same_process: bool) {
        if let Some(by) = self.threads.get_mut(&creator) {
            self.announced.insert(tid, by.child(same_process));
        }
    }

    /// A process in which nothing has been found yet.
    fn process(&self, first: String) -> Process {
        Process {
            awaited: self.mappings.get(&first).copied().unwrap_or(0),
            first,
            ..Process::default()
        }
    }

    /// `creator` made `tid`: a thread of its process, or a process. `stack` is the new thread's stack
    /// pointer. The new thread is stopped before its first instruction.
    pub fn created(
        &mut self,
        creator: i32,
        tid: i32,
        same_process: bool,
        stack: u64,
        act: &mut dyn Actuator,
    ) {
        let Some(by) = self.threads.get_mut(&creator) else {
            return self.stranger(tid, act);
        };
        let tgid = by.tgid;
        let path = match self.announced.remove(&tid) {
            Some(path) => path,
            None => by.child(same_process),
        };
        if same_process {
            self.enter(tid, tgid, Creator::new(path.clone()), act);
            self.found_stack(tgid, &path, stack, act);
        } else {
            // Memory policies and what was placed are inherited; new objects have new names.
            let process = self.process(path.clone());
            self.processes.insert(tid, process);
            self.enter(tid, tid, Creator::new(path), act);
        }
    }

    /// A thread whose creator is not known (it died first): not in the plan.
    pub fn stranger(&mut self, tid: i32, act: &mut dyn Actuator) {
        let allowed = self.allowed.clone();
        let _ = act.pin(tid, &allowed);
    }

    fn enter(&mut self, tid: i32, tgid: i32, creator: Creator, act: &mut dyn Actuator) {
        let planned = self.book.thread(creator.path());
        if let Some(process) = self.processes.get_mut(&tgid) {
            process.threads.insert(tid);
        }
        match planned {
            Some((at, pu)) => {
                let state = match act.pin(tid, &[pu]) {
                    Ok(()) => ThreadState::Placed,
                    Err(error) => ThreadState::Refused(error.raw_os_error().unwrap_or(0), pu),
                };
                if state != ThreadState::Placed {
                    // Better anywhere than on the creator's PU.
                    let _ = act.pin(tid, &self.allowed);
                }
                self.tally.thread(at, state);
            }
            None => {
                // Affinity is inherited: without this it would crowd its creator's PU.
                let _ = act.pin(tid, &self.allowed);
                if !self.book.leaves_out(creator.path()) {
                    self.tally.unplanned_thread(creator.path());
                }
            }
        }
        self.threads.insert(
            tid,
            Thread {
                creator,
                tgid,
                planned,
                own_affinity: false,
            },
        );
    }

    /// `execve` of a process: `former` called it, all other threads are gone, `tgid` goes on.
    pub fn executed(&mut self, tgid: i32, former: i32) {
        let first = self.processes.get(&tgid).map(|p| p.first.clone());
        // The first thread's counters go on; if another thread called, its own are lost with it.
        let keep = self
            .threads
            .remove(&tgid)
            .or_else(|| self.threads.remove(&former));
        self.threads.retain(|_, thread| thread.tgid != tgid);
        if let (Some(thread), Some(first)) = (keep, first) {
            self.threads.insert(tgid, thread);
            let mut process = self.process(first);
            process.threads.insert(tgid);
            self.processes.insert(tgid, process);
        }
    }

    /// Whether the program may set the affinity of `target` itself. Takes note of it either way.
    pub fn may_set_affinity(&mut self, target: i32) -> bool {
        let Some(thread) = self.threads.get_mut(&target) else {
            return true;
        };
        if let Some((at, _)) = thread.planned {
            self.tally.own_affinity(at, self.wishes.enforce);
            if self.wishes.enforce {
                return false;
            }
        }
        thread.own_affinity = true;
        true
    }

    /// Whether the program should be told the unrestricted PUs when it asks for `target`'s affinity.
    pub fn hides_affinity(&self, target: i32) -> bool {
        self.threads
            .get(&target)
            .is_some_and(|thread| thread.planned.is_some() && !thread.own_affinity)
    }

    /// A thread that is not followed any more: it keeps the PU it has, and none of its memory is placed.
    pub fn released(&mut self, tid: i32) {
        let Some(thread) = self.threads.remove(&tid) else {
            return;
        };
        if let Some(process) = self.processes.get_mut(&thread.tgid) {
            process.threads.remove(&tid);
            if process.threads.is_empty() {
                self.processes.remove(&thread.tgid);
            }
        }
    }

    /// A thread is about to end; its memory and affinity can still be read.
    pub fn ending(&mut self, tid: i32, act: &mut dyn Actuator) {
        let Some(thread) = self.threads.remove(&tid) else {
            return;
        };
        if let Some((at, pu)) = thread.planned
            && let Ok(mask) = act.affinity(tid)
        {
            self.tally.read_back(at, pu, &mask);
        }
        let tgid = thread.tgid;
        let Some(process) = self.processes.get_mut(&tgid) else {
            return;
        };
        process.threads.remove(&tid);
        if process.threads.is_empty() {
            let live = std::mem::take(&mut process.live);
            for live in live {
                // By this thread: a first thread that ended before has no memory any more.
                self.check(tid, live, (live.start, live.end), act);
            }
            self.processes.remove(&tgid);
        }
    }
}

#[cfg(test)]
mod tests;
