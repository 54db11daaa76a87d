//! A described machine's schedule, played on one thread in virtual time.
//!
//! Every worker of the machine has a queue and a clock. A task's code runs for real, when its worker
//! takes it; how long it *took* is the model's word: a fixed cost plus, for each block it holds, bytes
//! over the bandwidth a core has when all cores work (of its own memory, or of the link to the other
//! node). What the task made ready becomes available when it ends. `numa` sends tasks to their node
//! and steals inside nodes; `tbb` knows no nodes and steals from a random victim of the machine.
//! Deterministic for a given seed. What it shows is where tasks ran and which bytes were remote; its
//! times are the model's, not a measurement.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::config::{SchedulerKind, Stealing};
use crate::edt::{self, Edt};
use crate::runtime::Runtime;
use crate::scope;
use crate::worker::Worker;

/// Cost of a task beside its data, in nanoseconds.
const TASK_NS: f64 = 1000.0;

struct SimulatedWorker {
    node: u16,
    queue: VecDeque<*mut Edt>,
    /// What the task being run made ready.
    made_ready: Vec<*mut Edt>,
    idle: bool,
}

/// The simulation; see the module's text.
pub struct Simulation {
    workers: Vec<SimulatedWorker>,
    inboxes: Vec<VecDeque<*mut Edt>>,
    workers_of: Vec<Vec<usize>>,
    /// When which worker is done with what it does.
    events: BinaryHeap<Reverse<(u64, usize)>>,
    now_ns: u64,
    oblivious: bool,
    far: bool,
    /// Seconds per byte by (node of the worker, node of the memory).
    seconds_per_byte: Vec<f64>,
}

impl Simulation {
    /// The machine of a run, everybody idle.
    #[must_use]
    pub fn new(rt: &'static Runtime) -> Self {
        let nodes = rt.machine.nodes();
        let oblivious = rt.config.scheduler == SchedulerKind::Tbb;
        Self {
            workers: rt
                .workers
                .iter()
                .map(|worker| SimulatedWorker {
                    node: worker.node,
                    queue: VecDeque::new(),
                    made_ready: Vec::new(),
                    idle: true,
                })
                .collect(),
            inboxes: vec![VecDeque::new(); nodes],
            workers_of: rt.workers_of.clone(),
            events: BinaryHeap::new(),
            now_ns: 0,
            oblivious,
            far: oblivious || rt.stealing == Stealing::Any,
            seconds_per_byte: seconds_per_byte(rt),
        }
    }

    /// Virtual time so far.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.now_ns as f64 * 1e-9
    }

    /// # Safety
    /// `w` is this thread's worker and no reference to it is in use.
    pub(super) unsafe fn run(&mut self, w: *mut Worker) {
        // SAFETY: as the caller promises.
        unsafe {
            let first: Vec<*mut Edt> = (*w).ready.drain(..).collect();
            self.publish(&mut *w, 0, first);
            loop {
                while let Some(Reverse((time, at))) = self.events.pop() {
                    self.now_ns = time;
                    let made_ready = std::mem::take(&mut self.workers[at].made_ready);
                    self.publish(&mut *w, at, made_ready);
                    match self.find(&mut *w, at) {
                        Some(edt) => self.execute(w, at, edt),
                        None => self.workers[at].idle = true,
                    }
                }
                // Nobody runs: complete scopes whose credits are at hand.
                scope::settle(&mut *w);
                let ready: Vec<*mut Edt> = (*w).ready.drain(..).collect();
                if ready.is_empty() {
                    break;
                }
                self.publish(&mut *w, 0, ready);
            }
            (*w).rt.quiescent();
        }
    }

    /// # Safety
    /// As for [`Simulation::run`].
    unsafe fn execute(&mut self, w: *mut Worker, at: usize, edt: *mut Edt) {
        let node = self.workers[at].node;
        // SAFETY: as the caller promises.
        let ready = unsafe {
            (*w).node = node;
            let cost_ns = TASK_NS + self.cost_ns(&*w, node, edt);
            edt::execute(w, edt);
            scope::settle(&mut *w);
            self.events
                .push(Reverse((self.now_ns + cost_ns as u64, at)));
            (*w).ready.drain(..).collect()
        };
        self.workers[at].idle = false;
        self.workers[at].made_ready = ready;
    }

    fn cost_ns(&self, w: &Worker, node: u16, edt: *mut Edt) -> f64 {
        let nodes = self.inboxes.len();
        crate::block::held(w, edt)
            .map(|(bytes, on)| {
                let on = on.unwrap_or(node);
                bytes as f64 * self.seconds_per_byte[usize::from(node) * nodes + usize::from(on)]
            })
            .sum::<f64>()
            * 1e9
    }

    /// Makes tasks available at this moment, made ready by worker `by`, and puts idle workers to work.
    fn publish(&mut self, w: &mut Worker, by: usize, tasks: Vec<*mut Edt>) {
        for edt in tasks {
            // SAFETY: ready, so ours.
            let wanted = unsafe { (*edt).node };
            let node = w.rt.served_by[usize::from(wanted)];
            if self.oblivious || node == self.workers[by].node {
                self.workers[by].queue.push_back(edt);
                let wake = if self.far {
                    self.random_idle(w, 0..self.workers.len())
                } else {
                    let range = &self.workers_of[usize::from(node)];
                    range.iter().copied().find(|&at| self.workers[at].idle)
                };
                self.wake(wake);
            } else {
                self.inboxes[usize::from(node)].push_back(edt);
                let range = &self.workers_of[usize::from(node)];
                let wake = range.iter().copied().find(|&at| self.workers[at].idle);
                self.wake(wake);
            }
        }
    }

    fn random_idle(&self, w: &mut Worker, among: std::ops::Range<usize>) -> Option<usize> {
        let first = w.random_below(among.len());
        (0..among.len())
            .map(|at| among.start + (first + at) % among.len())
            .find(|&at| self.workers[at].idle)
    }

    fn wake(&mut self, worker: Option<usize>) {
        if let Some(at) = worker {
            self.workers[at].idle = false;
            self.events.push(Reverse((self.now_ns, at)));
        }
    }

    fn find(&mut self, w: &mut Worker, at: usize) -> Option<*mut Edt> {
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
        if self.far {
            let everybody: Vec<usize> = (0..self.workers.len()).collect();
            let stolen = self
                .steal(w, &everybody)
                .or_else(|| self.inboxes.iter_mut().find_map(VecDeque::pop_front));
            w.counters.stolen_far += u64::from(stolen.is_some());
            return stolen;
        }
        None
    }

    fn steal(&mut self, w: &mut Worker, victims: &[usize]) -> Option<*mut Edt> {
        let first = w.random_below(victims.len());
        (0..victims.len()).find_map(|at| {
            self.workers[victims[(first + at) % victims.len()]]
                .queue
                .pop_front()
        })
    }
}

/// What a byte costs a core when all cores work: its share of its node's memory bandwidth or, for
/// other nodes, of the link, but never less than local times the distance.
fn seconds_per_byte(rt: &Runtime) -> Vec<f64> {
    let nodes = rt.machine.nodes();
    let cores = (rt.workers.len() as f64 / nodes as f64).max(1.0);
    let hardware = rt.machine.topology().hardware();
    let local = cores / hardware.map_or(50e9, |h| h.memory_bandwidth_bytes_per_s);
    let mut cost = Vec::with_capacity(nodes * nodes);
    for from in 0..nodes as u16 {
        for to in 0..nodes as u16 {
            let by_distance = local * rt.machine.relative_distance(from, to);
            let by_link = hardware
                .and_then(|h| {
                    h.links
                        .iter()
                        .find(|l| l.from == u32::from(to) && l.to == u32::from(from))
                })
                .map_or(0.0, |link| cores / link.bandwidth_bytes_per_s);
            cost.push(if from == to {
                local
            } else {
                by_distance.max(by_link)
            });
        }
    }
    cost
}
