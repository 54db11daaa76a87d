//! SIGKILL that the program sends to processes that share its memory (`CLONE_VM` without `CLONE_THREAD`). Nothing holds
//! it up, so it could end a thread in the middle of the engine's work: the others would wait for its locks for ever.
//! So their threads are stopped outside the engine first.
#![allow(unsafe_code)]

use super::{INTERRUPTED, plain};
use crate::state::State;
use crate::{ending, record, signals, sys};

/// Makes the calls that send SIGKILL (`kill` and its relatives) if processes share the memory; `None` for others.
pub fn kill(state: &mut State, number: i64, a: [u64; 6]) -> Option<i64> {
    let (target, signal) = match number {
        libc::SYS_kill | libc::SYS_tkill | libc::SYS_rt_sigqueueinfo => (a[0] as i32, a[1]),
        libc::SYS_tgkill | libc::SYS_rt_tgsigqueueinfo => (a[1] as i32, a[2]),
        libc::SYS_pidfd_send_signal => (process_of(a[0] as i32), a[1]),
        _ => return None,
    };
    if signal as i32 != libc::SIGKILL || !ending::is_shared(state) {
        return None;
    }
    let named = number != libc::SYS_kill || target > 0;
    let meant = |id: u32| match target {
        _ if named => id as i32 == target,
        -1 => true,
        0 => group_of(id) == group_of(0),
        group => group_of(id) == i64::from(-group),
    };
    if meant(std::process::id()) || meant(state.tid) {
        signals::block_all(state);
        if state.pending != 0 {
            return Some(INTERRUPTED);
        }
        record::end_process(state, true);
        ending::claim(state);
        ending::stop_others(state, true);
    }
    // Without the right to do so, nothing ends.
    let stopped = ending::stop_processes(state, |id| meant(id) && may_kill(id));
    for &other in &stopped {
        // SAFETY: the thread has stopped outside its tracer.
        record::end_thread(unsafe { &mut *other });
    }
    let result = plain(number, a);
    if result == 0 {
        // SAFETY: blocks are never unmapped.
        stopped
            .into_iter()
            .for_each(|other| ending::release(unsafe { &*other }));
    }
    Some(result)
}

/// The process group of a process; 0: of the calling one.
fn group_of(process: u32) -> i64 {
    // SAFETY: no preconditions.
    unsafe { sys::call(libc::SYS_getpgid, [process.into(), 0, 0, 0, 0, 0]) }
}

fn may_kill(tid: u32) -> bool {
    // SAFETY: asks only.
    unsafe { sys::call(libc::SYS_kill, [tid.into(), 0, 0, 0, 0, 0]) == 0 }
}

/// The process of a descriptor; 0 if it is none.
fn process_of(descriptor: i32) -> i32 {
    let information = std::fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}"));
    let information = information.unwrap_or_default();
    let pid = information
        .lines()
        .find_map(|line| line.strip_prefix("Pid:"));
    pid.and_then(|pid| pid.trim().parse().ok()).unwrap_or(0)
}
