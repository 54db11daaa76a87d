//! The list of tasks that wait inside themselves.

use std::sync::Mutex;

use crate::guid::Guid;

/// A task that waits inside itself.
pub struct Wait {
    /// The worker on whose thread it waits.
    pub(crate) worker: usize,
    /// Name and GUID of the task, for reports.
    pub(crate) task: String,
    /// An event, or a label.
    pub(crate) what: Guid,
    /// Data blocks it holds while waiting.
    pub(crate) holds: Vec<Guid>,
}

/// Tasks that wait inside themselves, oldest first.
#[derive(Default)]
pub struct Waits(Mutex<Vec<Wait>>);

impl Waits {
    /// Records that a task starts to wait.
    pub fn begin(&self, wait: Wait) {
        self.lock().push(wait);
    }

    /// Records the end of the latest wait on a worker.
    pub fn end(&self, worker: usize) {
        let mut waits = self.lock();
        if let Some(at) = waits.iter().rposition(|wait| wait.worker == worker) {
            waits.remove(at);
        }
    }

    /// Number of tasks that wait.
    #[cfg_attr(not(numaloc_tbb), allow(dead_code))]
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// The list, locked.
    pub fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Wait>> {
        self.0.lock().expect("no panic while locked")
    }
}
