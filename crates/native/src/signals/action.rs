//! The program's actions for signals.
#![allow(unsafe_code)]

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

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

/// Drops handlers; signals that are ignored stay so. The numbers of those that had one.
pub fn clear(actions: &mut [Action; SIGNALS]) -> Vec<i32> {
    let plain = [libc::SIG_DFL as u64, libc::SIG_IGN as u64];
    let numbered = actions.iter_mut().zip(0..);
    let handled = numbered.filter(|(action, _)| !plain.contains(&action.handler));
    handled
        .map(|(action, number)| {
            *action = Action::default();
            number
        })
        .collect()
}

/// Signal state shared by the threads of a process.
pub struct Process {
    /// By signal number.
    pub actions: Lock<[Action; SIGNALS]>,
    /// See [`Process::keep_defaults`].
    keeps_defaults: AtomicBool,
}

impl Process {
    /// A process with these actions; not freed unless by [`Process::free`].
    pub fn new(actions: [Action; SIGNALS]) -> &'static Self {
        Box::leak(Box::new(Self {
            actions: Lock::new(actions),
            keeps_defaults: AtomicBool::new(false),
        }))
    }

    /// Signals that kill the process reach the engine first: others share its memory, and the kernel would kill it
    /// while it holds their locks.
    pub fn keep_defaults(&self) {
        self.keeps_defaults.store(true, Relaxed);
    }

    /// Whether signals that kill the process reach the engine first.
    pub fn keeps_defaults(&self) -> bool {
        self.keeps_defaults.load(Relaxed)
    }

    /// # Safety
    /// From [`Process::new`], and nothing refers to it any more.
    pub unsafe fn free(&'static self) {
        // SAFETY: as the caller promises.
        drop(unsafe { Box::from_raw(std::ptr::from_ref(self).cast_mut()) });
    }
}
