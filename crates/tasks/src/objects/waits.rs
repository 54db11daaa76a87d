//! The list of tasks that wait inside themselves.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::guid::Guid;

/// A task that waits inside itself.
pub struct Wait {
    /// Name and GUID of the task, for reports.
    pub(crate) task: String,
    /// An event, or a label.
    pub(crate) what: Guid,
    /// Data blocks it holds while waiting.
    pub(crate) holds: Vec<Guid>,
}

/// Tasks that wait inside themselves, oldest first, each with its number.
#[derive(Default)]
pub struct Waits {
    all: Mutex<Vec<(u64, Wait)>>,
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Waits {
    /// Records that a task starts to wait. Returns a number for [`Waits::end`].
    pub fn begin(&self, wait: Wait) -> u64 {
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        self.lock().push((number, wait));
        number
    }

    /// Records the end of a wait.
    pub fn end(&self, number: u64) {
        self.lock().retain(|(other, _)| *other != number);
        self.ended.fetch_add(1, Ordering::SeqCst);
    }

    /// Number of beginnings and ends so far.
    #[cfg_attr(not(numaloc_tbb), allow(dead_code))]
    pub fn changes(&self) -> u64 {
        self.begun.load(Ordering::SeqCst) + self.ended.load(Ordering::SeqCst)
    }

    /// Number of tasks that wait.
    #[cfg_attr(not(numaloc_tbb), allow(dead_code))]
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// The list, locked.
    pub fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(u64, Wait)>> {
        self.all.lock().expect("no panic while locked")
    }
}
