//! The threads of a process, as their states refer to them.

use std::sync::atomic::{AtomicU32, AtomicU64};

/// The threads of a process, which end together.
pub struct Group {
    /// Address of the state of the thread that ends the process; 0 while it runs.
    pub(super) ender: AtomicU64,
    /// 0 if the process has left this address space. The kernel clears it for processes that share it.
    pub alive: AtomicU32,
    /// Whether it runs natively from now on: see [`super::gate`].
    pub leaving: AtomicU32,
}

impl Group {
    /// A process that runs.
    pub fn new() -> &'static Self {
        Box::leak(Box::new(Self {
            ender: AtomicU64::new(0),
            alive: AtomicU32::new(1),
            leaving: AtomicU32::new(0),
        }))
    }
}
