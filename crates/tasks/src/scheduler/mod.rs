//! Schedulers: queue ready tasks and run them on workers. Of a task they know its beginning only ([`ready::Ready`]).
//!
//! | scheduler | own tasks | other workers' tasks |
//! |---|---|---|
//! | `numa` | newest first | node's inbox, then the oldest of a worker of the node (of any node: `STEAL=any`) |
//! | `tbb` | decided by oneTBB | decided by oneTBB, which ignores nodes |
//! | `single` | oldest first, one thread | none |
//!
//! If the described machine is not this one, [`simulate`] runs `numa` and `tbb` in virtual time.

mod idle;
mod numa;
pub(crate) mod queues;
pub(crate) mod ready;
mod simulate;
mod single;
mod tbb;

use std::cell::Cell;
use std::ptr;

use ready::Ready;
pub use simulate::Simulation;

use crate::config::SchedulerKind;
use crate::error::RunError;
use crate::state::Worker;

thread_local! {
    static SIMULATION: Cell<*mut Simulation> = const { Cell::new(ptr::null_mut()) };
}

/// Queues a ready task.
#[inline]
pub fn schedule(w: &mut Worker, edt: *mut Ready) {
    if w.rt.simulated || w.rt.config.scheduler == SchedulerKind::Single {
        w.ready.push_back(edt);
    } else if w.rt.config.scheduler == SchedulerKind::Tbb {
        tbb::schedule(w, edt);
    } else {
        numa::schedule(w, edt);
    }
}

/// Runs all tasks until the program ends, with this thread as worker 0.
///
/// # Errors
/// The build has no such scheduler.
///
/// # Safety
/// `w` is this thread's worker and no reference to it is in use.
pub unsafe fn run_all(w: *mut Worker, simulation: Option<&mut Simulation>) -> Result<(), RunError> {
    // SAFETY: as the caller promises.
    unsafe {
        let rt = (*w).rt;
        if let Some(simulation) = simulation {
            let simulation: *mut Simulation = simulation;
            SIMULATION.set(simulation);
            Simulation::run(simulation, w);
            SIMULATION.set(ptr::null_mut());
            return Ok(());
        }
        match rt.config.scheduler {
            SchedulerKind::Single => single::run(w),
            SchedulerKind::Numa => numa::run_all(w),
            SchedulerKind::Tbb => return tbb::run_all(w),
        }
    }
    Ok(())
}

/// Runs one ready task inside the current one, if there is any (legacy waiting).
///
/// # Safety
/// As for [`run_all`].
pub unsafe fn run_one(w: *mut Worker) -> bool {
    // SAFETY: as the caller promises.
    unsafe {
        let rt = (*w).rt;
        if rt.simulated {
            return Simulation::run_one(SIMULATION.get(), w);
        }
        match rt.config.scheduler {
            SchedulerKind::Single => single::run_one(w),
            SchedulerKind::Numa => match numa::find_work(&mut *w) {
                Some(edt) => {
                    rt.tasks.run(w, edt);
                    true
                }
                None => false,
            },
            // Tasks in oneTBB can only be taken by its own loop.
            SchedulerKind::Tbb => false,
        }
    }
}

/// Called when the current task waits and there is nothing to run: returns when `ready` holds or there may be work.
/// False: neither can happen any more.
pub fn pause(w: &mut Worker, ready: &mut dyn FnMut(&mut Worker) -> bool) -> bool {
    if w.rt.simulated || w.rt.config.scheduler == SchedulerKind::Single {
        // With one thread, nothing else can change the state.
        return false;
    }
    match w.rt.config.scheduler {
        SchedulerKind::Tbb => tbb::pause(w, ready),
        _ => numa::pause(w, ready),
    }
}

/// Virtual time so far, in a simulated run.
pub fn simulated_seconds() -> Option<f64> {
    let simulation = SIMULATION.get();
    // SAFETY: set for the duration of the run; used by this thread only, and not being changed.
    (!simulation.is_null()).then(|| unsafe { (*simulation).seconds() })
}
