//! A task waits inside itself: its worker's loop goes on on another stack, and continues the task afterwards.

use std::io;

use super::fibres::Fibres;
use super::kept::Kept;
use super::{SIMULATION, Simulation, numa, single};
use crate::config::SchedulerKind;
use crate::state::{self, Worker};

fn of(w: &mut Worker) -> &mut Fibres<Worker> {
    &mut w.fibres
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
        Fibres::leave(w, of)
    }
}

/// The current task waits until `ready`.
///
/// # Errors
/// There is no memory for another stack.
///
/// # Safety
/// `w` is this thread's worker and no reference to it is in use.
pub unsafe fn wait(w: *mut Worker, ready: &mut dyn FnMut(&mut Worker) -> bool) -> io::Result<()> {
    // SAFETY: as the caller promises; references end before the stack is left.
    unsafe {
        let (kept, node) = (Kept::take(&mut *w), (*w).node);
        let simulation = SIMULATION.get();
        let playing = (!simulation.is_null()).then(|| (*simulation).suspended(&mut *w));
        let waited = Fibres::wait(w, of, body, ready);
        kept.restore(&mut *w);
        (*w).node = node;
        if let Some(at) = playing {
            (*simulation).continued(at);
        }
        waited
    }
}

/// Continues a task of this worker whose wait is over, if there is one. Called between two tasks.
///
/// # Safety
/// As for [`wait`].
#[inline]
pub unsafe fn go_on(w: *mut Worker, all: bool) -> bool {
    // SAFETY: as the caller promises.
    unsafe { (*w).fibres.any_waits() && Fibres::go_on(w, of, all) }
}

/// Whether the wait of a task of this worker is over.
///
/// # Safety
/// As for [`wait`].
pub unsafe fn any_ready(w: *mut Worker) -> bool {
    // SAFETY: as the caller promises.
    unsafe { Fibres::any_ready(w, of) }
}

/// One thread runs all tasks, none is ready, and none continues: the end of the run, or a deadlock.
///
/// # Safety
/// As for [`wait`].
pub unsafe fn end(w: *mut Worker) {
    // SAFETY: as the caller promises.
    let (rt, waits) = unsafe { ((*w).rt, (*w).fibres.any_waits()) };
    if waits {
        rt.tasks.stuck(rt);
    }
    rt.tasks.quiescent(rt);
}
