//! Simulates the schedule of a described machine on one thread in virtual time.
//!
//! Every worker of the machine has a queue and a clock. A task starts when its worker takes it; its duration follows
//! the model: a fixed cost plus, for each block it holds, bytes over the bandwidth a core has when all cores work (of
//! its own memory, or of the link to the other node). Its code runs for real at the virtual time at which it ends, so
//! that tasks satisfy events and leave finish scopes in the order in which they end. `numa` sends tasks to their node
//! and steals inside nodes; `tbb` ignores nodes and steals from a random victim of the machine. While a task waits
//! inside itself, its worker takes other tasks and the rest of the machine continues. Where any worker may steal from
//! any other, chance decides which of those that become idle at the same time goes first: in a fixed order, equal tasks
//! would go to the same workers in every iteration, as in no real run. Deterministic for a given seed.
//! The result shows where tasks ran and which bytes were remote; its times are the model's, not measurements.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;

use numaloc_task_plan::{SECONDS_PER_TASK, seconds_per_byte};

use super::ready::Ready;
use super::suspend;
use crate::config::{SchedulerKind, Stealing};
use crate::state::{Runtime, Worker};

struct SimulatedWorker {
    node: u16,
    queue: VecDeque<*mut Ready>,
    idle: bool,
    /// Number of the latest event of this worker, after which it looks for work. Earlier events are ends of tasks that
    /// waited inside themselves while it took the next one.
    latest_event: u64,
}

/// The simulation; see the module documentation.
pub struct Simulation {
    workers: Vec<SimulatedWorker>,
    inboxes: Vec<VecDeque<*mut Ready>>,
    workers_of: Vec<Vec<usize>>,
    /// Future events by time, turn among those of the same time, and number: the worker's task ends (if there is one),
    /// and the worker looks for work.
    events: BTreeMap<(u64, usize, u64), (usize, Option<*mut Ready>)>,
    next_event: u64,
    /// The worker whose task is running.
    playing: usize,
    now_ns: u64,
    oblivious: bool,
    /// Seconds per byte by (node of the worker, node of the memory).
    seconds_per_byte: Vec<f64>,
}

impl Simulation {
    /// Creates the simulation of a run, with all workers idle.
    #[must_use]
    pub fn new(rt: &'static Runtime) -> Self {
        let nodes = rt.machine.nodes();
        let oblivious = rt.config.scheduler == SchedulerKind::Tbb;
        Self {
            workers: rt
                .queues
                .workers
                .iter()
                .map(|worker| SimulatedWorker {
                    node: worker.node,
                    queue: VecDeque::new(),
                    idle: true,
                    latest_event: 0,
                })
                .collect(),
            inboxes: vec![VecDeque::new(); nodes],
            workers_of: rt.queues.workers_of.clone(),
            events: BTreeMap::new(),
            next_event: 0,
            playing: 0,
            now_ns: 0,
            oblivious,
            seconds_per_byte: seconds_per_byte(rt.machine.topology(), rt.queues.workers.len()),
        }
    }

    /// Virtual time so far.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.now_ns as f64 * 1e-9
    }

    /// Whether workers without work may steal from any other node.
    fn far(&self, w: &Worker) -> bool {
        self.oblivious || w.rt.queues.stealing() == Stealing::Any
    }

    /// The node with most waiting tasks of those that workers of node `by` may take from because of that.
    fn with_surplus(&self, w: &Worker, by: usize) -> Option<usize> {
        let queues = &w.rt.queues;
        (queues.stealing() == Stealing::Surplus)
            .then(|| queues.most_waiting(by, |node| self.waiting(node)))?
    }

    /// Number of tasks that wait on a node.
    fn waiting(&self, node: usize) -> usize {
        let own = self.workers_of[node].iter();
        own.map(|&at| self.workers[at].queue.len()).sum::<usize>() + self.inboxes[node].len()
    }

    /// Schedules an event: the current task of worker `at` ends (if there is one), and the worker looks for work.
    fn event(&mut self, w: &mut Worker, time: u64, at: usize, ends: Option<*mut Ready>) {
        self.next_event += 1;
        self.workers[at].latest_event = self.next_event;
        let turn = if self.far(w) {
            w.random_below(1 << 31)
        } else {
            at
        };
        self.events
            .insert((time, turn, self.next_event), (at, ends));
    }

    /// # Safety
    /// `this` is this thread's simulation and `w` its worker; no reference to either is in use.
    pub(super) unsafe fn run(this: *mut Self, w: *mut Worker) {
        // SAFETY: as the caller promises. References end before a task's code runs.
        unsafe {
            let first: Vec<*mut Ready> = (*w).ready.drain(..).collect();
            (*this).publish(&mut *w, 0, first);
            Self::work(this, w);
        }
    }

    /// The loop, on any stack of the thread.
    ///
    /// # Safety
    /// As for [`Simulation::run`].
    pub(super) unsafe fn work(this: *mut Self, w: *mut Worker) {
        // SAFETY: as the caller promises.
        unsafe {
            let rt = (*w).rt;
            while !rt.stop.load(Ordering::Relaxed) {
                // All of them: virtual time must not depend on how many are polled.
                if suspend::go_on(w, true) || Self::step(this, w) {
                    continue;
                }
                // Nothing runs: return the credits, which may complete scopes.
                rt.tasks.out_of_tasks(&mut *w);
                let ready: Vec<*mut Ready> = (*w).ready.drain(..).collect();
                let none = ready.is_empty();
                (*this).publish(&mut *w, 0, ready);
                if none && !suspend::go_on(w, true) {
                    suspend::end(w);
                }
            }
        }
    }

    /// The running task waits inside itself: its worker looks for another. Returns the worker.
    pub(super) fn suspended(&mut self, w: &mut Worker) -> usize {
        let ready: Vec<*mut Ready> = w.ready.drain(..).collect();
        let at = self.playing;
        self.publish(w, at, ready);
        self.event(w, self.now_ns, at, None);
        at
    }

    /// A task of that worker continues after it waited inside itself.
    pub(super) fn continued(&mut self, at: usize) {
        self.playing = at;
    }

    /// Handles the next event: a task ends, its worker takes another. False: there is none.
    ///
    /// # Safety
    /// As for [`Simulation::run`].
    unsafe fn step(this: *mut Self, w: *mut Worker) -> bool {
        // SAFETY: as for `run`.
        unsafe {
            let Some(((time, _, number), (at, ends))) = (*this).events.pop_first() else {
                return false;
            };
            (*this).now_ns = time;
            if let Some(edt) = ends {
                Self::end(this, w, at, edt);
            }
            let this = &mut *this;
            if number == this.workers[at].latest_event {
                this.begin(&mut *w, at);
            }
            true
        }
    }

    /// Lets worker `at` take a task, or marks it idle.
    fn begin(&mut self, w: &mut Worker, at: usize) {
        let found = self.find(w, at);
        self.workers[at].idle = found.is_none();
        if let Some(edt) = found {
            let cost_ns = SECONDS_PER_TASK * 1e9 + self.cost_ns(w, self.workers[at].node, edt);
            self.event(w, self.now_ns + cost_ns as u64, at, Some(edt));
        }
    }

    /// Ends the task of worker `at`: runs its code, and publishes the tasks that became ready.
    ///
    /// # Safety
    /// As for [`Simulation::run`].
    unsafe fn end(this: *mut Self, w: *mut Worker, at: usize, edt: *mut Ready) {
        // SAFETY: as for `run`. References end before the task's code runs.
        unsafe {
            let node = {
                let this = &mut *this;
                this.playing = at;
                std::mem::replace(&mut (*w).node, this.workers[at].node)
            };
            (*w).rt.tasks.run(w, edt);
            (*w).rt.tasks.out_of_tasks(&mut *w);
            let ready = (*w).ready.drain(..).collect();
            (*w).node = node;
            let this = &mut *this;
            this.publish(&mut *w, at, ready);
        }
    }

    fn cost_ns(&self, w: &Worker, node: u16, edt: *mut Ready) -> f64 {
        let nodes = self.inboxes.len();
        let mut seconds = 0.0;
        w.rt.tasks.blocks(w, edt, &mut |bytes, on| {
            let on = on.unwrap_or(node);
            seconds +=
                bytes as f64 * self.seconds_per_byte[usize::from(node) * nodes + usize::from(on)];
        });
        seconds * 1e9
    }

    /// Publishes tasks made ready by worker `by`, and wakes idle workers for them.
    fn publish(&mut self, w: &mut Worker, by: usize, tasks: Vec<*mut Ready>) {
        for edt in tasks {
            // SAFETY: ready, so owned by us.
            let wanted = unsafe { (*edt).node };
            let node = w.rt.queues.served_by[usize::from(wanted)];
            if self.oblivious || node == self.workers[by].node {
                self.workers[by].queue.push_back(edt);
                let wake = if self.far(w) {
                    self.random_idle(w, 0..self.workers.len())
                } else {
                    self.idle_for(w, usize::from(node))
                };
                self.wake(w, wake);
            } else {
                self.inboxes[usize::from(node)].push_back(edt);
                let wake = self.idle_for(w, usize::from(node));
                self.wake(w, wake);
            }
        }
    }

    /// An idle worker for a task of `node`: one of the node, or of another that may take one.
    fn idle_for(&self, w: &Worker, node: usize) -> Option<usize> {
        let mut own = self.workers_of[node].iter().copied();
        own.find(|&at| self.workers[at].idle).or_else(|| {
            (0..self.workers.len()).find(|&at| {
                let by = usize::from(self.workers[at].node);
                self.workers[at].idle && self.with_surplus(w, by) == Some(node)
            })
        })
    }

    fn random_idle(&self, w: &mut Worker, among: std::ops::Range<usize>) -> Option<usize> {
        let first = w.random_below(among.len());
        (0..among.len())
            .map(|at| among.start + (first + at) % among.len())
            .find(|&at| self.workers[at].idle)
    }

    fn wake(&mut self, w: &mut Worker, worker: Option<usize>) {
        if let Some(at) = worker {
            self.workers[at].idle = false;
            self.event(w, self.now_ns, at, None);
        }
    }

    fn find(&mut self, w: &mut Worker, at: usize) -> Option<*mut Ready> {
        if let Some(edt) = self.workers[at].queue.pop_back() {
            return Some(edt);
        }
        let node = usize::from(self.workers[at].node);
        if let Some(edt) = self.inboxes[node].pop_front() {
            w.counters.inbox += 1;
            return Some(edt);
        }
        if !self.oblivious {
            let victims = std::mem::take(&mut self.workers_of[node]);
            let stolen = self.steal(w, &victims);
            self.workers_of[node] = victims;
            if stolen.is_some() {
                w.counters.stolen += 1;
                return stolen;
            }
        }
        if !self.oblivious
            && let Some(other) = self.with_surplus(w, node)
        {
            let victims = std::mem::take(&mut self.workers_of[other]);
            let stolen = self
                .steal(w, &victims)
                .or_else(|| self.inboxes[other].pop_front());
            self.workers_of[other] = victims;
            w.counters.stolen_far += u64::from(stolen.is_some());
            return stolen;
        }
        if self.far(w) {
            let all: Vec<usize> = (0..self.workers.len()).collect();
            let stolen = self
                .steal(w, &all)
                .or_else(|| self.inboxes.iter_mut().find_map(VecDeque::pop_front));
            w.counters.stolen_far += u64::from(stolen.is_some());
            return stolen;
        }
        None
    }

    fn steal(&mut self, w: &mut Worker, victims: &[usize]) -> Option<*mut Ready> {
        let first = w.random_below(victims.len());
        (0..victims.len()).find_map(|at| {
            self.workers[victims[(first + at) % victims.len()]]
                .queue
                .pop_front()
        })
    }
}
