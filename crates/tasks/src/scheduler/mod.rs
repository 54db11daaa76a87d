//! Schedulers: queue ready tasks and run them on workers. Of a task they know its beginning only ([`ready::Ready`]).
//!
//! | scheduler | own tasks | other workers' tasks |
//! |---|---|---|
//! | `numa` | newest first | node's inbox, then the oldest of a worker of the node (`STEAL`: of others) |
//! | `tbb` | decided by oneTBB | decided by oneTBB, which ignores nodes |
//! | `single` | oldest first, one thread | none |
//!
//! If the described machine is not this one, [`simulate`] runs `numa` and `tbb` in virtual time.

pub(crate) mod fibres;
mod idle;
mod kept;
mod numa;
pub(crate) mod queues;
pub(crate) mod ready;
mod simulate;
mod single;
mod suspend;
mod tbb;

use std::cell::Cell;
use std::{io, ptr};

use ready::Ready;
pub use simulate::Simulation;

use crate::config::SchedulerKind;
use crate::error::RunError;
use crate::state::{self, Worker};

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

/// Where a new stack starts: this thread's loop.
extern "C" fn body() {
    let w = state::current();
    // SAFETY: this thread's worker; a waiting task holds no reference to it.
    unsafe {
        let rt = (*w).rt;
        if rt.simulated {
            Simulation::work(SIMULATION.get(), w);
        } else if rt.config.scheduler == SchedulerKind::Single {
            single::work(w);
        } else {
            numa::work(w);
        }
        suspend::leave(w)
    }
}

/// The current task waits inside itself until `ready` holds; other tasks run meanwhile. False: it never will, because
/// nothing else can happen. The task may continue on another thread with the scheduler `tbb`, so a reference to the
/// worker must be made again from [`state::current`].
///
/// # Errors
/// There is no memory for another waiting task.
///
/// # Safety
/// As for [`run_all`].
pub unsafe fn wait(w: *mut Worker, ready: &mut dyn FnMut(&mut Worker) -> bool) -> io::Result<bool> {
    // SAFETY: as the caller promises.
    unsafe {
        let rt = (*w).rt;
        if !rt.simulated && rt.config.scheduler == SchedulerKind::Tbb {
            return Ok(tbb::wait(w, ready));
        }
        let simulation = SIMULATION.get();
        let playing = (!simulation.is_null()).then(|| (*simulation).suspended(&mut *w));
        let waited = suspend::wait(w, body, ready);
        if let Some(at) = playing {
            (*simulation).continued(at);
        }
        waited.map(|()| true)
    }
}

/// Virtual time so far, in a simulated run.
pub fn simulated_seconds() -> Option<f64> {
    let simulation = SIMULATION.get();
    // SAFETY: set for the duration of the run; used by this thread only, and not being changed.
    (!simulation.is_null()).then(|| unsafe { (*simulation).seconds() })
}
