//! What the schedulers know of a task: the first fields of its memory.

use std::sync::atomic::AtomicPtr;

use numaloc_task_queues::Linked;

use crate::objects::header::Header;

/// The beginning of every task.
#[repr(C)]
pub struct Ready {
    pub(crate) header: Header,
    /// Link of the inbox or waiting list that the task is in.
    pub(crate) link: AtomicPtr<Ready>,
    /// The node that the task should run on.
    pub(crate) node: u16,
}

// SAFETY: `link` always returns this field; a task is in at most one inbox or waiting list at a time.
unsafe impl Linked for Ready {
    fn link(&self) -> &AtomicPtr<Self> {
        &self.link
    }
}
