//! A task waits inside itself: its worker's loop goes on on another stack, and continues the task afterwards.

use std::io;

use super::fibres::Fibres;
use super::kept::Kept;
use crate::state::Worker;

fn of(w: &mut Worker) -> &mut Fibres<Worker> {
    &mut w.fibres
}

/// The current task waits until `ready`.
///
/// # Errors
/// There is no memory for another stack.
///
/// # Safety
/// `w` is this thread's worker and no reference to it is in use; `body` runs its loop and then calls [`leave`].
pub unsafe fn wait(
    w: *mut Worker,
    body: extern "C" fn(),
    ready: &mut dyn FnMut(&mut Worker) -> bool,
) -> io::Result<()> {
    // SAFETY: as the caller promises; references end before the stack is left.
    unsafe {
        let (kept, node) = (Kept::take(&mut *w), (*w).node);
        let waited = Fibres::wait(w, of, body, ready);
        kept.restore(&mut *w);
        (*w).node = node;
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

/// The loop has ended on another stack than the thread's own.
///
/// # Safety
/// As for [`wait`]; no task waits.
pub unsafe fn leave(w: *mut Worker) -> ! {
    // SAFETY: as the caller promises.
    unsafe { Fibres::leave(w, of) }
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
