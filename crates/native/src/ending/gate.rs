//! Where the threads of a process wait until all may run natively: see [`crate::leaving`].

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Acquire;

use crate::state::{Signal, State};

// Values of [`phase`].
/// The engine runs the process.
pub const STAYS: u32 = 0;
/// Its threads come to the gate.
pub const STOPPING: u32 = 1;
/// It runs natively.
pub const LEFT: u32 = 2;

/// How far the thread's process is.
pub fn phase(state: &State) -> &AtomicU32 {
    &state.group.leaving
}

/// Whether a signal is the one that stops threads of a process that leaves.
pub fn is_request(state: &State, signal: &Signal) -> bool {
    signal.number == libc::SIGTRAP
        && signal.info[1] as u32 as i32 == libc::SI_TKILL
        && phase(state).load(Acquire) == STOPPING
}
