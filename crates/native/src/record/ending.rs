//! Ends the tracers of all threads when the process ends itself: the other threads are interrupted and wait outside
//! their tracers until the kernel ends them.
#![allow(unsafe_code)]

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use crate::state::State;
use crate::{blocks, sys};

static REQUESTED: AtomicBool = AtomicBool::new(false);
/// How long threads are waited for: those that do not stop in time lose what they have not written yet.
const LIMIT: Duration = Duration::from_secs(2);

/// Whether the process is ending, so that threads must wait where they are.
pub fn requested() -> bool {
    REQUESTED.load(Relaxed)
}

/// Waits for the end of the process.
pub fn park(state: &State) -> ! {
    state.parked.store(1, Release);
    loop {
        // SAFETY: waits for a signal; fatal ones end the process.
        unsafe { sys::call(libc::SYS_pause, [0; 6]) };
    }
}

/// Stops the other threads and returns those that are recorded and have stopped. Called by one thread; a second caller
/// waits for the end of the process.
pub fn stop_others(state: &State) -> Vec<*mut State> {
    if REQUESTED.swap(true, Relaxed) {
        park(state);
    }
    let others: Vec<*const State> = blocks::all();
    let others = others
        .into_iter()
        .filter(|&other| !std::ptr::eq(other, state));
    // SAFETY: blocks are never unmapped, and these threads have not ended.
    let recorded = |other: &*const State| unsafe { (**other).recording };
    let others: Vec<*const State> = others.filter(recorded).collect();
    let deadline = Instant::now() + LIMIT;
    loop {
        let mut waiting = false;
        for &other in &others {
            // SAFETY: as above.
            let (parked, tid) = unsafe { ((*other).parked.load(Acquire), (*other).tid) };
            if parked == 0 {
                waiting = true;
                let pid = std::process::id();
                let number = libc::SIGTRAP as u64;
                let arguments = [pid.into(), tid.into(), number, 0, 0, 0];
                // SAFETY: a signal that the engine handles.
                unsafe { sys::call(libc::SYS_tgkill, arguments) };
            }
        }
        if !waiting || Instant::now() > deadline {
            break;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    // SAFETY: as above.
    let stopped = |other: &*const State| unsafe { (**other).parked.load(Acquire) == 1 };
    others
        .into_iter()
        .filter(stopped)
        .map(<*const State>::cast_mut)
        .collect()
}
