//! What a worker has of its current task, kept while the task waits inside itself and others run.

use std::{mem, ptr};

use crate::guid::Guid;
use crate::objects::block::Block;
use crate::objects::task::{Edt, Progress};
use crate::state::Worker;

/// See the module documentation.
pub struct Kept {
    current: *mut Edt,
    created: Vec<*mut Block>,
    storage: Option<(*mut Edt, Box<[Guid; 256]>)>,
}

impl Kept {
    /// Takes it from the worker, which is between two tasks afterwards.
    pub fn take(w: &mut Worker) -> Self {
        debug_assert!(!w.delivering, "tasks wait in their own code only");
        let current = mem::replace(&mut w.current, ptr::null_mut());
        let stored = w.storage.iter().position(|&(owner, _)| owner == current);
        Self {
            current,
            created: mem::take(&mut w.created),
            storage: stored.map(|at| w.storage.swap_remove(at)),
        }
    }

    /// Gives it back to a worker, which may be another one and is between two tasks.
    pub fn restore(self, w: &mut Worker) {
        debug_assert!(w.current.is_null() && w.created.is_empty());
        w.current = self.current;
        w.created = self.created;
        w.storage.extend(self.storage);
        // SAFETY: the current task is alive and this thread's.
        unsafe { (*w.current).progress = Progress::Waited };
    }
}
