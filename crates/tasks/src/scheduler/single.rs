//! One thread, oldest ready task first: the same order in every run. For profiling, and for finding
//! errors.

use crate::edt;
use crate::scope;
use crate::worker::Worker;

/// # Safety
/// `w` is this thread's worker and no reference to it is in use.
pub unsafe fn run(w: *mut Worker) {
    // SAFETY: as the caller promises.
    unsafe {
        loop {
            while let Some(edt) = (*w).ready.pop_front() {
                // The node it is meant for counts as the node it runs on: what it creates without a
                // hint stays there.
                (*w).node = (*edt).node;
                edt::execute(w, edt);
            }
            scope::settle(&mut *w);
            if (*w).ready.is_empty() {
                (*w).rt.quiescent();
                return;
            }
        }
    }
}
