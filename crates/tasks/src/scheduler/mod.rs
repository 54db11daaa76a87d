//! Schedulers: where a ready task waits, and who runs it.
//!
//! | scheduler | own tasks | other workers' tasks |
//! |---|---|---|
//! | `numa` | newest first | node's inbox, then the oldest of a worker of the node (of any node: `STEAL=any`) |
//! | `tbb` | oneTBB's business | oneTBB's business; nodes mean nothing |
//! | `single` | oldest first, one thread | none |
//!
//! With a machine that is not this one, [`simulate`] plays `numa` and `tbb` in virtual time.

mod numa;
mod simulate;
mod single;
mod tbb;

use std::cell::Cell;
use std::ptr;

pub use simulate::Simulation;

use crate::config::SchedulerKind;
use crate::edt::Edt;
use crate::worker::Worker;

thread_local! {
    static SIMULATION: Cell<*mut Simulation> = const { Cell::new(ptr::null_mut()) };
}

/// Takes a ready task.
#[inline]
pub fn schedule(w: &mut Worker, edt: *mut Edt) {
    if w.rt.simulated || w.rt.config.scheduler == SchedulerKind::Single {
        w.ready.push_back(edt);
    } else if w.rt.config.scheduler == SchedulerKind::Tbb {
        tbb::schedule(w, edt);
    } else {
        numa::schedule(w, edt);
    }
}

/// Runs everything, this thread being worker 0, until the program is over.
///
/// # Safety
/// `w` is this thread's worker and no reference to it is in use.
pub unsafe fn run_all(w: *mut Worker, simulation: Option<&mut Simulation>) -> Result<(), String> {
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
                    crate::edt::execute(w, edt);
                    true
                }
                None => false,
            },
            // Only oneTBB's own loop takes its tasks.
            SchedulerKind::Tbb => false,
        }
    }
}

/// The current task waits and there is nothing to run: comes back when `ready` holds or there may be work. False:
/// neither will ever be.
pub fn pause(w: &mut Worker, ready: &mut dyn FnMut(&mut Worker) -> bool) -> bool {
    if w.rt.simulated || w.rt.config.scheduler == SchedulerKind::Single {
        // One thread: nobody else can change anything.
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
    // SAFETY: set for the time of the run; this thread's alone, and nothing of it is being changed.
    (!simulation.is_null()).then(|| unsafe { (*simulation).seconds() })
}
