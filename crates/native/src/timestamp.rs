//! Programs that forbid themselves to read the time-stamp counter (`PR_SET_TSC`).
//!
//! The engine reads it all the time, with the C library's clock, so the kernel's setting stays as it is. Once a thread
//! has made the request, code is translated so that it leaves the cache where it reads the counter.
#![allow(unsafe_code)]

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use crate::guest;
use crate::state::{RAX, RCX, RDX, State};

static GUARDED: AtomicBool = AtomicBool::new(false);

/// Whether a thread has made the request.
pub fn is_guarded() -> bool {
    GUARDED.load(Relaxed)
}

/// A thread makes the request. Returns whether it is the first, so that other code has been translated before.
pub fn guard() -> bool {
    !GUARDED.swap(true, Relaxed)
}

/// Bytes of the instruction at the thread's address, and whether it also reads the processor's number, if it reads the
/// counter.
fn reads(state: &State) -> Option<(u64, bool)> {
    let code: [u8; 2] = guest::read(state.pc)?;
    match code {
        [0x0f, 0x31] => Some((2, false)),
        [0x0f, 0x01] => (guest::read::<u8>(state.pc + 2)? == 0xf9).then_some((3, true)),
        _ => None,
    }
}

/// What the instruction at the thread's address does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reading {
    /// It has read the counter.
    Done,
    /// It faults.
    Forbidden,
    /// It is another instruction.
    Other,
}

/// Executes the instruction at the thread's address if it reads the counter.
pub fn read(state: &mut State) -> Reading {
    let Some((len, processor)) = reads(state) else {
        return Reading::Other;
    };
    if state.no_timestamp {
        return Reading::Forbidden;
    }
    let mut number = 0;
    // SAFETY: reads a counter.
    let time = unsafe {
        match processor {
            true => std::arch::x86_64::__rdtscp(&raw mut number),
            false => std::arch::x86_64::_rdtsc(),
        }
    };
    state.regs[RAX] = time & 0xffff_ffff;
    state.regs[RDX] = time >> 32;
    if processor {
        state.regs[RCX] = number.into();
    }
    state.pc += len;
    Reading::Done
}
