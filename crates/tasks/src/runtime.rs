//! A run of the runtime: start, workers, end.

use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};

use crate::config::{Config, SchedulerKind, Stealing};
use crate::error::{Error, RunError};
use crate::guid::Guid;
use crate::machine::{Machine, NO_NODE};
use crate::memory::Memory;
use crate::names::Names;
use crate::objects::arena::Arena;
use crate::objects::task::EdtFunction;
use crate::objects::{blocks, label, scopes, tasks, waits};
use crate::observe::outcome::conclude;
use crate::observe::record::Recorder;
use crate::observe::stats::Stats;
use crate::observe::{crash, stuck};
use crate::plan::FlatPlan;
use crate::scheduler::queues::Queues;
use crate::scheduler::ready::Ready;
use crate::scheduler::{self, Simulation};
use crate::state::{Observer, Runtime, Tasks, Worker, set_current};

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

/// The tasks of a program, as the schedulers use them.
struct Edts;

impl Tasks for Edts {
    unsafe fn run(&self, w: *mut Worker, task: *mut Ready) {
        // SAFETY: as the caller promises; every ready task is an EDT.
        unsafe { tasks::execute(w, task.cast()) };
    }

    fn out_of_tasks(&self, w: &mut Worker) {
        scopes::return_credits(w);
    }

    fn blocks(&self, w: &Worker, task: *mut Ready, each: &mut dyn FnMut(u64, Option<u16>)) {
        blocks::for_each_held(w, task.cast(), |_, block, _| {
            // SAFETY: held by the task, so alive.
            let block = unsafe { &*block };
            each(block.size, block.place());
        });
    }

    fn awaited_event_has_fired(&self, rt: &Runtime) -> bool {
        stuck::awaited_event_has_fired(rt)
    }

    fn quiescent(&self, rt: &Runtime) {
        stuck::quiescent(rt);
    }

    fn stuck(&self, rt: &'static Runtime) -> ! {
        stuck::end(rt)
    }
}

/// Prepares a run with these settings.
fn prepare(config: Config) -> Result<Runtime, RunError> {
    let machine = Machine::new(config.machine.clone());
    let simulated = !machine.is_real() && !config.threads && config.profile.is_none();
    let workers = match config.scheduler {
        SchedulerKind::Single => 1,
        _ => config.workers.unwrap_or_else(|| machine.pus()),
    };
    let names = Names::default();
    let plan = match &config.plan {
        Some(folder) => {
            let plan = numaloc_task_plan::read_plan(folder)?;
            Some(FlatPlan::new(&plan, &names, machine.nodes())?)
        }
        None => None,
    };
    let observer = match &config.profile {
        Some(folder) => {
            let recorder = Recorder::new(folder, &config, &machine)?;
            Some(Box::new(recorder) as Box<dyn Observer>)
        }
        None => None,
    };
    let of_plan = plan.as_ref().map_or(Stealing::Any, |plan| plan.stealing);
    let stealing = config.stealing.unwrap_or(of_plan);
    Ok(Runtime {
        arena: Arena::new().map_err(RunError::Addresses)?,
        memory: Memory::new(config.allocator, &machine),
        names,
        count_traffic: config.stats.is_some() || simulated,
        plan,
        observer,
        tasks: &Edts,
        queues: Queues::new(&machine, workers, stealing),
        waits: waits::Waits::default(),
        awaited: label::Awaited::default(),
        maps: label::Maps::default(),
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

/// Creates the first task: data block 0 holds the arguments.
///
/// # Safety
/// `function` keeps to `ocr.h`.
unsafe fn start_program(
    w: &mut Worker,
    function: EdtFunction,
    arguments: &[&[u8]],
) -> Result<(), Error> {
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
    let block = blocks::create_filled(w, &bytes)?;
    let name = w.rt.names.number("mainEdt");
    let template = tasks::create_template(w, function, 0, 1, name)?;
    let new = tasks::New {
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
        let (edt, guid, _) = tasks::create(w, &new, ptr::null())?;
        tasks::destroy_template(w, template)?;
        tasks::start(w, edt, guid, &raw const block)
    }
}

/// Runs a program from its first task to the end.
///
/// # Errors
/// The settings cannot be applied, or the results cannot be written.
///
/// # Safety
/// `function` and all task functions it creates keep to `ocr.h`.
pub unsafe fn run(
    config: Config,
    function: EdtFunction,
    arguments: &[&[u8]],
) -> Result<Outcome, RunError> {
    let _running = RUNNING
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let rt = Box::into_raw(Box::new(prepare(config)?));
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
) -> Result<Outcome, RunError> {
    let mut worker = Worker::new(rt, 0, rt.queues.workers[0].node);
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
        return Err(RunError::OutOfMemory);
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
