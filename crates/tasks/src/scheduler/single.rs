//! One thread, oldest ready task first: the same order in every run. For profiling and debugging.

use std::sync::atomic::Ordering;

use super::suspend;
use crate::state::Worker;

/// Runs the oldest ready task. False: there is none.
///
/// # Safety
/// `w` is this thread's worker and no reference to it is in use.
pub unsafe fn run_one(w: *mut Worker) -> bool {
    // SAFETY: as the caller promises.
    unsafe {
        let Some(edt) = (*w).ready.pop_front() else {
            return false;
        };
        // The task's assigned node counts as the node it runs on, so what it creates without a hint stays there.
        let before = std::mem::replace(&mut (*w).node, (*edt).node);
        (*w).rt.tasks.run(w, edt);
        (*w).node = before;
        true
    }
}

/// # Safety
/// As for [`run_one`].
pub unsafe fn run(w: *mut Worker) {
    // SAFETY: as the caller promises.
    unsafe {
        // Near and far are only meaningful if the thread stays on one node.
        if (*w).rt.config.profile.is_some() {
            super::numa::pin((*w).rt, (*w).node);
        }
        work(w);
    }
}

/// The loop, on any stack of the thread.
///
/// # Safety
/// As for [`run_one`].
pub unsafe fn work(w: *mut Worker) {
    // SAFETY: as the caller promises.
    unsafe {
        let rt = (*w).rt;
        while !rt.stop.load(Ordering::Relaxed) {
            if suspend::go_on(w, false) || run_one(w) {
                continue;
            }
            rt.tasks.out_of_tasks(&mut *w);
            if (*w).ready.is_empty() && !suspend::go_on(w, true) {
                suspend::end(w);
            }
        }
    }
}
