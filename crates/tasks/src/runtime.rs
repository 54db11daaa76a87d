//! A run of the runtime: start, workers, end.

use std::collections::BTreeMap;
use std::ffi::c_char;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread::Thread;

use numaloc_task_queues::{Deque, Inbox};

use crate::abi::{EdtFunction, Errno, Guid, Result};
use crate::arena::Arena;
use crate::config::{Config, SchedulerKind, Stealing};
use crate::edt::{self, Edt};
use crate::idle::Idle;
use crate::machine::Machine;
use crate::memory::Memory;
use crate::names::Names;
use crate::object::{Header, Kind, Tag, place_of};
use crate::plan::FlatPlan;
use crate::record::Recorder;
use crate::scheduler::{self, Simulation};
use crate::stats::Stats;
use crate::stuck::Wait;
use crate::worker::{Counters, NO_NODE, Worker, set_current};
use crate::{block, crash, label, names, stuck};

/// The part of a worker that other workers access.
pub struct Shared {
    pub(crate) deque: Deque<Edt>,
    pub(crate) node: u16,
    pub(crate) thread: OnceLock<Thread>,
    pub(crate) woken: AtomicBool,
}

/// A node's scheduler state.
#[derive(Default)]
pub struct NodeState {
    pub(crate) inbox: Inbox<Edt>,
    /// Number of sleeping workers.
    pub(crate) sleeping: AtomicU32,
    /// Number of awake workers that look for work.
    pub(crate) searching: AtomicU32,
}

/// A run.
pub struct Runtime {
    pub(crate) config: Config,
    pub(crate) machine: Machine,
    pub(crate) arena: Arena,
    pub(crate) memory: Memory,
    pub(crate) names: Names,
    pub(crate) plan: Option<FlatPlan>,
    pub(crate) recorder: Option<Box<Recorder>>,
    pub(crate) count_traffic: bool,
    pub(crate) stealing: Stealing,
    pub(crate) workers: Vec<Shared>,
    pub(crate) nodes: Vec<NodeState>,
    pub(crate) workers_of: Vec<Vec<usize>>,
    /// The node whose workers serve a node: itself, or the nearest one with workers.
    pub(crate) served_by: Vec<u16>,
    pub(crate) idle: Mutex<Idle>,
    /// Tasks that wait inside themselves, oldest first.
    pub(crate) waits: Mutex<Vec<Wait>>,
    /// Dependences on labels under which nothing exists yet.
    pub(crate) awaited: label::Awaited,
    /// Maps from tuples to labels.
    pub(crate) maps: label::Maps,
    pub(crate) simulated: bool,
    pub(crate) shutdown: AtomicBool,
    pub(crate) stop: AtomicBool,
    pub(crate) status: AtomicI32,
    pub(crate) complaints: AtomicU64,
    pub(crate) next_worker: AtomicUsize,
    /// Counters of each worker, by worker index.
    totals: Mutex<BTreeMap<usize, Counters>>,
    started: std::time::Instant,
}

/// Result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// Exit status for the program.
    pub status: i32,
    /// Statistics.
    pub stats: Stats,
}

/// Allows one run at a time in a process.
static RUNNING: Mutex<()> = Mutex::new(());

impl Runtime {
    fn new(config: Config) -> std::result::Result<Self, String> {
        let machine = Machine::new(config.machine.clone());
        let simulated = !machine.is_real() && !config.threads && config.profile.is_none();
        let workers = match config.scheduler {
            SchedulerKind::Single => 1,
            _ => config.workers.unwrap_or_else(|| machine.pus()),
        };
        let names = Names::default();
        let plan = match &config.plan {
            Some(folder) => {
                let plan =
                    numaloc_task_plan::read_plan(folder).map_err(|error| error.to_string())?;
                Some(FlatPlan::new(&plan, &names, machine.nodes())?)
            }
            None => None,
        };
        let recorder = match &config.profile {
            Some(folder) => Some(Box::new(Recorder::new(folder, &config, &machine)?)),
            None => None,
        };
        let spread = machine.spread(workers);
        let mut workers_of = vec![Vec::new(); machine.nodes()];
        for (at, &node) in spread.iter().enumerate() {
            workers_of[usize::from(node)].push(at);
        }
        let served_by = (0..machine.nodes() as u16)
            .map(|node| {
                (0..machine.nodes() as u16)
                    .filter(|&other| !workers_of[usize::from(other)].is_empty())
                    .min_by(|&a, &b| {
                        let far = |other| {
                            if other == node {
                                0.0
                            } else {
                                machine.distance(node, other)
                            }
                        };
                        far(a).total_cmp(&far(b))
                    })
                    .unwrap_or(0)
            })
            .collect();
        Ok(Self {
            arena: Arena::new().map_err(|error| format!("cannot reserve addresses: {error}"))?,
            memory: Memory::new(config.allocator, &machine),
            names,
            count_traffic: config.stats.is_some() || simulated,
            stealing: config.stealing.unwrap_or(match &plan {
                Some(plan) if !plan.steal_anywhere => Stealing::Node,
                _ => Stealing::Any,
            }),
            plan,
            recorder,
            workers: spread
                .iter()
                .map(|&node| Shared {
                    deque: Deque::new(256),
                    node,
                    thread: OnceLock::new(),
                    woken: AtomicBool::new(false),
                })
                .collect(),
            nodes: (0..machine.nodes()).map(|_| NodeState::default()).collect(),
            idle: Mutex::new(Idle::new(machine.nodes(), spread.len())),
            waits: Mutex::default(),
            awaited: label::Awaited::default(),
            maps: label::Maps::default(),
            workers_of,
            served_by,
            simulated,
            shutdown: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            status: AtomicI32::new(0),
            complaints: AtomicU64::new(0),
            next_worker: AtomicUsize::new(0),
            totals: Mutex::default(),
            started: std::time::Instant::now(),
            machine,
            config,
        })
    }

    /// Memory of the object a GUID refers to; not checked for being that object still.
    #[inline]
    pub(crate) fn object(&self, guid: Guid) -> Result<*mut Header> {
        match place_of(guid) {
            Some((offset, tag)) if tag == Tag::Object as i64 => self
                .arena
                .at(offset)
                .map(<*mut u8>::cast)
                .ok_or(Errno::EINVAL),
            _ => Err(Errno::EINVAL),
        }
    }

    /// The live object of that kind behind a GUID; error `gone` if it is of another kind or no longer alive.
    #[inline]
    pub(crate) fn live(&self, guid: Guid, kind: Kind, gone: Errno) -> Result<*mut Header> {
        let object = self.object(guid)?;
        // SAFETY: memory of objects is always readable as a header.
        let alive = unsafe { (*object).is(kind, guid) };
        alive.then_some(object).ok_or(gone)
    }

    /// Whether a GUID refers to a live object.
    pub(crate) fn is_alive(&self, guid: Guid) -> bool {
        self.object(guid).is_ok_and(|header| {
            // SAFETY: memory of objects is always readable as a header.
            let header = unsafe { &*header };
            [Kind::Edt, Kind::Event, Kind::Block, Kind::Template]
                .iter()
                .any(|&kind| header.is(kind, guid))
        })
    }

    /// Publishes a worker's counters, replacing those it published before.
    pub(crate) fn publish_counters(&self, w: &Worker) {
        let mut totals = self.totals.lock().expect("no panic while locked");
        totals.insert(w.index, w.counters);
    }

    fn totals(&self) -> Counters {
        let mut sum = Counters::default();
        let totals = self.totals.lock().expect("no panic while locked");
        for counters in totals.values() {
            sum.add(counters);
        }
        sum
    }

    /// Reports why the run cannot continue or did not end well.
    pub(crate) fn report(&self, text: &str) {
        eprintln!("numaloc_ocr: {text}");
    }

    /// Called when nothing is ready and nothing runs: the end of the run, or a deadlock.
    pub(crate) fn quiescent(&self) {
        if !self.shutdown.load(Ordering::SeqCst) {
            self.report(
                "deadlock: no task is ready, none is running, and ocrShutdown was not called",
            );
            stuck::report_tasks(self);
            self.status.store(1, Ordering::SeqCst);
        }
        self.stop.store(true, Ordering::SeqCst);
    }
}

impl Worker {
    /// In checked mode: reports an error of the program and where it occurred.
    #[cold]
    pub(crate) fn complain(&self, during: &str, what: impl FnOnce() -> String) {
        if !self.rt.config.checked {
            return;
        }
        // An error in a loop must not fill the disk.
        if self.rt.complaints.fetch_add(1, Ordering::Relaxed) >= 100 {
            return;
        }
        let task = stuck::task(self.rt, self.current);
        self.rt.report(&format!("{task}: {during}: {}", what()));
    }

    /// Passes a ready task that holds its blocks to the scheduler.
    #[inline]
    pub(crate) fn schedule(&mut self, edt: *mut Edt) {
        scheduler::schedule(self, edt);
    }
}

/// Creates the first task: data block 0 holds the arguments.
unsafe fn start_program(w: &mut Worker, function: EdtFunction, arguments: &[&[u8]]) -> Result<()> {
    let mut contents = vec![arguments.len() as u64];
    let mut at = (1 + arguments.len()) * 8;
    for argument in arguments {
        contents.push(at as u64);
        at += argument.len() + 1;
    }
    let mut bytes: Vec<u8> = contents.iter().flat_map(|n| n.to_ne_bytes()).collect();
    for argument in arguments {
        bytes.extend_from_slice(argument);
        bytes.push(0);
    }
    let block = block::create_filled(w, &bytes)?;
    let name = w.rt.names.number("mainEdt");
    let template = edt::create_template(w, function, 0, 1, name)?;
    let new = edt::New {
        template,
        paramc: 0,
        depc: 1,
        finish: false,
        hinted: NO_NODE,
        output: Guid::NULL,
        want_output: false,
    };
    // SAFETY: no parameters, one source.
    unsafe {
        let (edt, guid, _) = edt::create(w, &new, ptr::null())?;
        edt::destroy_template(w, template)?;
        edt::start(w, edt, guid, &raw const block)
    }
}

/// Runs a program from its first task to the end.
///
/// # Errors
/// A message, if the settings cannot be applied.
///
/// # Safety
/// `function` and all task functions it creates keep to `ocr.h`.
pub unsafe fn run(
    config: Config,
    function: EdtFunction,
    arguments: &[&[u8]],
) -> std::result::Result<Outcome, String> {
    let _running = RUNNING
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let rt = Box::into_raw(Box::new(Runtime::new(config)?));
    // SAFETY: lives until the end of this function, after every worker has ended.
    let reference: &'static Runtime = unsafe { &*rt };
    // SAFETY: the caller's promise.
    let result = unsafe { run_in(reference, function, arguments) };
    // SAFETY: made above; every worker has ended.
    drop(unsafe { Box::from_raw(rt) });
    result
}

unsafe fn run_in(
    rt: &'static Runtime,
    function: EdtFunction,
    arguments: &[&[u8]],
) -> std::result::Result<Outcome, String> {
    let mut worker = Worker::new(rt, 0, rt.workers[0].node);
    let w: *mut Worker = &raw mut *worker;
    set_current(w);
    let _crashes = rt
        .config
        .checked
        .then(|| (crash::Handlers::install(), crash::Stack::install()));
    let mut simulation = rt.simulated.then(|| Simulation::new(rt));
    // SAFETY: this thread's worker; no task runs yet.
    let started = unsafe { start_program(&mut *w, function, arguments) };
    if started.is_err() {
        set_current(ptr::null_mut());
        return Err("out of memory".to_owned());
    }
    // SAFETY: `w` is this thread's worker.
    unsafe { scheduler::run_all(w, simulation.as_mut()) }?;
    set_current(ptr::null_mut());
    rt.publish_counters(&worker);
    if rt.config.checked && rt.status.load(Ordering::SeqCst) == 0 {
        stuck::report_never_run(rt);
    }
    let stats = conclude(rt, simulation.as_ref().map(Simulation::seconds))?;
    Ok(Outcome {
        status: rt.status.load(Ordering::SeqCst),
        stats,
    })
}

/// Writes the profile and the statistics.
///
/// # Errors
/// A message that names the file.
pub(crate) fn conclude(
    rt: &Runtime,
    simulated_seconds: Option<f64>,
) -> std::result::Result<Stats, String> {
    if let Some(recorder) = &rt.recorder {
        recorder.write(rt)?;
    }
    let stats = Stats {
        counters: rt.totals(),
        seconds: rt.started.elapsed().as_secs_f64(),
        simulated_seconds,
        workers: rt.workers.len(),
        nodes: rt.machine.nodes(),
        machine: rt.machine.topology().name().to_owned(),
        object_bytes: rt.arena.used_bytes() as u64,
        bindings_refused: rt.memory.refused(),
        complaints: rt.complaints.load(Ordering::Relaxed),
    };
    if let Some(path) = &rt.config.stats {
        std::fs::write(path, stats.to_json())
            .map_err(|error| format!("cannot write statistics to {}: {error}", path.display()))?;
    }
    Ok(stats)
}

/// Interns a template's name.
///
/// # Safety
/// `name` is null or a C string.
pub unsafe fn name_number(w: &mut Worker, function: EdtFunction, name: *const c_char) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { names::number_of(w, function, name) }
}
