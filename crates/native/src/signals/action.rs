//! The program's actions for signals.

use crate::lock::Lock;

/// Signals have the numbers 1 to 64.
pub const SIGNALS: usize = 65;

/// The program's action for a signal: the kernel's `struct sigaction`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Action {
    /// `SIG_DFL`, `SIG_IGN` or an address.
    pub handler: u64,
    /// `SA_…`.
    pub flags: u64,
    /// Return address of the handler.
    pub restorer: u64,
    /// Signals blocked while the handler runs.
    pub mask: u64,
}

/// Signal state shared by the threads of a process.
pub struct Process {
    /// By signal number.
    pub actions: Lock<[Action; SIGNALS]>,
}

impl Process {
    /// A process with these actions; never freed.
    pub fn new(actions: [Action; SIGNALS]) -> &'static Self {
        Box::leak(Box::new(Self {
            actions: Lock::new(actions),
        }))
    }
}
