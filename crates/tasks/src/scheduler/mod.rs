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

pub(crate) use numa::find_work;

thread_local! {
    static SIMULATION: Cell<*mut Simulation> = const { Cell::new(ptr::null_mut()) };
}

/// Makes `simulation` this thread's.
pub fn set_simulation(simulation: &mut Simulation) {
    SIMULATION.with(|cell| cell.set(simulation));
}

/// No simulation any more.
pub fn clear_simulation() {
    SIMULATION.with(|cell| cell.set(ptr::null_mut()));
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
            simulation.run(w);
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
        let next = if rt.simulated || rt.config.scheduler == SchedulerKind::Single {
            (*w).ready.pop_front()
        } else if rt.config.scheduler == SchedulerKind::Numa {
            find_work(&mut *w)
        } else {
            None
        };
        let Some(edt) = next else { return false };
        crate::edt::execute(w, edt);
        true
    }
}
