//! One thread, oldest ready task first: the same order in every run. For profiling and debugging.

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
        loop {
            while run_one(w) {}
            (*w).rt.tasks.out_of_tasks(&mut *w);
            if (*w).ready.is_empty() {
                (*w).rt.tasks.quiescent((*w).rt);
                return;
            }
        }
    }
}
