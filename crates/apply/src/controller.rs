//! Decides what to do when a thread starts or memory appears: looks it up in the plan and calls an
//! [`Actuator`]. Independent of ptrace; tests run it against an actuator that only records its calls.
//!
//! This file handles threads; [`mod@roles`] those of plans by role; [`mod@moves`] later moves; [`memory`] maps memory
//! to objects of the plan; [`pages`] places and checks their pages.

mod memory;
pub mod moves;
mod pages;
mod roles;

use numaloc_identity::{Creator, Orders, ThreadPath};
use numaloc_model::profile::ObjectKind;
use std::collections::{HashMap, HashSet};
use std::io;

use crate::index::PlanIndex;
use crate::moves::Moves;
use crate::roster::{Called, Roster};
use crate::spread::Spread;
use crate::tally::{Tally, ThreadState};
use roles::Policies;

/// The operations that change or inspect the machine; tests substitute a recorder.
pub trait Actuator {
    /// Restricts thread `tid` to PUs (kernel numbers).
    fn pin(&mut self, tid: i32, pus: &[u32]) -> io::Result<()>;
    /// The PUs a thread may run on (kernel numbers).
    fn affinity(&mut self, tid: i32) -> io::Result<Vec<u32>>;
    /// Sets `node` as the preferred node of each memory range `(start, end, node)` in the stopped thread's process.
    /// Returns 0 or an errno for each range.
    fn bind(&mut self, ranges: &[(u64, u64, u32)]) -> Vec<i32>;
    /// Moves existing pages of process `tgid` to `nodes`. Returns a node or a negative errno for each page.
    fn relocate(&mut self, tgid: i32, pages: &[u64], nodes: &[i32]) -> io::Result<Vec<i32>>;
    /// Interleaves new pages of the memory `start..end` over nodes, in the stopped thread's process. Returns 0 or an
    /// errno.
    fn interleave(&mut self, range: (u64, u64), nodes: &[u32]) -> i32;
    /// Distributes new pages of the memory `start..end` over nodes by the system's weights, in the stopped thread's
    /// process. Returns 0 or an errno.
    fn interleave_by_weights(&mut self, range: (u64, u64), nodes: &[u32]) -> i32;
    /// Sets the memory policy of the stopped thread: interleaved over `nodes`, or local if there are none. Returns 0 or
    /// an errno.
    fn own_policy(&mut self, nodes: &[u32]) -> i32;
    /// Queries where pages of the process of thread `tid` are. Returns a node or a negative errno for each page.
    fn locate(&mut self, tid: i32, pages: &[u64]) -> io::Result<Vec<i32>>;
}

/// What the user asked for in addition to the plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApplyOptions {
    /// Read back the node of every planned page before its memory goes away.
    pub verify: bool,
    /// Overrule the program's own `sched_setaffinity`.
    pub enforce: bool,
}

/// An object of the plan that exists in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Live {
    object: usize,
    base: u64,
    /// Extent of its memory that still exists: `start..end`.
    start: u64,
    end: u64,
}

/// An object found in a process: its index in the plan, its first byte, and the extent of its memory.
type Found = (usize, u64, (u64, u64));

#[derive(Clone, Debug, Default)]
struct Process {
    first: String,
    /// Objects of the plan found so far.
    found: HashSet<usize>,
    /// Number of planned mappings not found yet.
    awaited: usize,
    threads: HashSet<i32>,
    orders: Orders,
    live: Vec<Live>,
    /// Anonymous mappings that a new thread may use as its stack.
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
    /// The path of the next thread or process that it creates.
    fn child(&mut self, same_process: bool) -> String {
        if same_process {
            self.creator.next_thread()
        } else {
            self.creator.next_process()
        }
    }
}

/// Applies a plan to the threads and the memory of a program; see the module.
pub struct Controller {
    index: PlanIndex,
    options: ApplyOptions,
    allowed: Vec<u32>,
    threads: HashMap<i32, Thread>,
    processes: HashMap<i32, Process>,
    stack_sizes: HashSet<u64>,
    /// Paths of threads that were announced but have not reached their first stop.
    announced: HashMap<i32, String>,
    /// Number of planned objects that come from mappings, by the path of their process.
    mappings: HashMap<String, usize>,
    tally: Tally,
    moves: Moves,
    roster: Option<Roster>,
    /// What is known of threads that are about to be reported.
    described: HashMap<i32, (Called, Option<String>)>,
    policies: Policies,
    spread: Spread,
}

/// Whether an object is created by a call that maps memory.
fn is_mapped(kind: ObjectKind) -> bool {
    matches!(
        kind,
        ObjectKind::Mapping | ObjectKind::Shared | ObjectKind::Stack
    )
}

impl Controller {
    /// A controller for a plan. `allowed`: the PUs the program may use without a plan (kernel numbers).
    pub fn new(index: PlanIndex, options: ApplyOptions, allowed: Vec<u32>) -> Self {
        let stack_sizes = index
            .objects()
            .filter(|(_, key)| key.kind == ObjectKind::Stack)
            .map(|(_, key)| key.size)
            .collect();
        let mut mappings: HashMap<String, usize> = HashMap::new();
        for (_, key) in index.objects().filter(|(_, key)| is_mapped(key.kind)) {
            let process = ThreadPath::new(key.creator.as_deref().unwrap_or("0"))
                .process()
                .as_str();
            *mappings.entry(process.to_owned()).or_default() += 1;
        }
        Self {
            mappings,
            tally: Tally::new(&index),
            index,
            options,
            allowed,
            threads: HashMap::new(),
            processes: HashMap::new(),
            stack_sizes,
            announced: HashMap::new(),
            moves: Moves::default(),
            roster: None,
            described: HashMap::new(),
            policies: Policies::default(),
            spread: Spread::default(),
        }
    }

    /// The same with the pages that the kernel distributes by the system's weights.
    #[must_use]
    pub fn with_spread(mut self, spread: Spread) -> Self {
        self.spread = spread;
        self
    }

    /// The same with the later moves of the plan.
    #[must_use]
    pub fn with_moves(mut self, moves: Moves) -> Self {
        self.moves = moves;
        self
    }

    /// The later moves.
    pub fn moves(&self) -> &Moves {
        &self.moves
    }

    /// The later moves, to be carried out.
    pub fn moves_mut(&mut self) -> &mut Moves {
        &mut self.moves
    }

    /// What was done so far.
    pub fn tally(&mut self) -> &mut Tally {
        &mut self.tally
    }

    /// Ends the run and returns everything that was done.
    pub fn into_tally(mut self) -> Tally {
        for note in self.moves.notes() {
            self.tally.note(note);
        }
        if let Some(note) = self.spread.note() {
            self.tally.note(note);
        }
        if let Some(mut roster) = self.roster {
            roster.close();
            self.tally.roles(roster.outcome(), self.policies.late());
        }
        self.tally
    }

    /// The PUs the program sees as its affinity (kernel numbers).
    pub fn allowed(&self) -> &[u32] {
        &self.allowed
    }

    /// The process of a known thread.
    pub fn process_of(&self, tid: i32) -> Option<i32> {
        self.threads.get(&tid).map(|thread| thread.tgid)
    }

    /// Registers the program's first thread and pins it.
    pub fn started(&mut self, tid: i32, act: &mut dyn Actuator) {
        let process = self.process("0".to_owned());
        self.processes.insert(tid, process);
        self.enter(tid, tid, Creator::new("0"), None, act);
    }

    /// `creator` is creating `tid`. Paths are assigned in the order of these reports, because the first stops of new
    /// threads, reported by [`Self::created`], come in any order.
    pub fn announced(&mut self, creator: i32, tid: i32, same_process: bool) {
        if let Some(by) = self.threads.get_mut(&creator) {
            self.announced.insert(tid, by.child(same_process));
        }
    }

    /// A process in which no object has been found yet.
    fn process(&self, first: String) -> Process {
        Process {
            awaited: self.mappings.get(&first).copied().unwrap_or(0),
            first,
            ..Process::default()
        }
    }

    /// `creator` created `tid`: a thread of its process, or a process. `stack` is the new thread's stack
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
            return self.unknown(tid, act);
        };
        let tgid = by.tgid;
        let path = match self.announced.remove(&tid) {
            Some(path) => path,
            None => by.child(same_process),
        };
        if same_process {
            self.enter(tid, tgid, Creator::new(path.clone()), Some(creator), act);
            self.found_stack(tgid, &path, stack, act);
        } else {
            // Memory policies and placed pages are inherited, but the child's new objects are named afresh.
            let process = self.process(path.clone());
            self.processes.insert(tid, process);
            self.enter(tid, tid, Creator::new(path), Some(creator), act);
        }
    }

    /// Registers a thread whose creator is unknown because it died first. The plan cannot contain it.
    pub fn unknown(&mut self, tid: i32, act: &mut dyn Actuator) {
        let allowed = self.allowed.clone();
        let _ = act.pin(tid, &allowed);
    }

    /// Binds a thread to a PU, unless numaloc was started with an affinity mask without it (`taskset`, a batch system):
    /// whoever set that has given the other PUs to somebody else.
    fn pin(&self, tid: i32, pu: u32, act: &mut dyn Actuator) -> io::Result<()> {
        if !self.allowed.contains(&pu) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        act.pin(tid, &[pu])
    }

    fn enter(
        &mut self,
        tid: i32,
        tgid: i32,
        creator: Creator,
        by: Option<i32>,
        act: &mut dyn Actuator,
    ) {
        let planned = self.index.thread(creator.path());
        let by_role = self.seat_new(tid, tgid, by, act);
        if let Some(process) = self.processes.get_mut(&tgid) {
            process.threads.insert(tid);
        }
        match planned {
            Some((at, pu)) => {
                let state = match self.pin(tid, pu, act) {
                    Ok(()) => ThreadState::Placed,
                    Err(error) => ThreadState::Refused(error.raw_os_error().unwrap_or(0), pu),
                };
                if state != ThreadState::Placed {
                    // The PU was refused: the thread may run anywhere rather than share its creator's PU.
                    let _ = act.pin(tid, &self.allowed);
                }
                self.tally.thread(at, state);
            }
            None if by_role => {}
            None => {
                // Affinity is inherited; without this the thread would share its creator's PU.
                let _ = act.pin(tid, &self.allowed);
                if !self.index.leaves_out(creator.path()) {
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

    /// Process `tgid` called `execve` in thread `former`; only one thread, `tgid`, remains.
    pub fn executed(&mut self, tgid: i32, former: i32) {
        let first = self.processes.get(&tgid).map(|p| p.first.clone());
        // The first thread's counters continue; those of another calling thread are lost with it.
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

    /// Whether the program may set the affinity of `target` itself. Records the attempt either way.
    pub fn may_set_affinity(&mut self, target: i32) -> bool {
        let Some(thread) = self.threads.get_mut(&target) else {
            return true;
        };
        if let Some((at, _)) = thread.planned {
            self.tally.own_affinity(at, self.options.enforce);
            if self.options.enforce {
                return false;
            }
        }
        if self
            .roster
            .as_ref()
            .is_some_and(|roster| roster.seats(target))
        {
            self.tally.own_seat(self.options.enforce);
            if self.options.enforce {
                return false;
            }
        }
        thread.own_affinity = true;
        true
    }

    /// Whether a query for `target`'s affinity should return the unrestricted PUs.
    pub fn hides_affinity(&self, target: i32) -> bool {
        let seated = self
            .roster
            .as_ref()
            .is_some_and(|roster| roster.seats(target));
        self.threads
            .get(&target)
            .is_some_and(|thread| (seated || thread.planned.is_some()) && !thread.own_affinity)
    }

    /// Stops following a thread: it keeps its PU, and none of its memory is placed.
    pub fn released(&mut self, tid: i32) {
        if let Some(roster) = &mut self.roster {
            roster.ended(tid, None);
        }
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
        if let Some(roster) = &mut self.roster {
            roster.ended(tid, act.affinity(tid).ok().as_deref());
            self.policies.ended(tid);
        }
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
                // Read through this thread, because a first thread that ended earlier has no memory any more.
                self.check(tid, live, (live.start, live.end), act);
            }
            self.processes.remove(&tgid);
        }
    }
}

#[cfg(test)]
mod tests;
