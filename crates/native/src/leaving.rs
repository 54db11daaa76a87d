//! A process that the engine can no longer run: it goes on natively, from exactly the instruction that cannot be
//! executed in the cache, with one line on standard error. The profile says from when on it is missing.
//!
//! All its threads go together, because actions for signals and the protection of memory are the process's. The thread
//! that reached the instruction claims this, and stops the others: each leaves the cache at a point where its state is
//! known, repeats the system call in which it was interrupted, if any, and waits at a gate. Then the kernel gets what
//! the engine has kept for the program: protection of code, actions, limits, filters. Last, each thread loads its state
//! as at the return of a signal handler. The engine's memory stays where it is, but for what the program wants itself.
#![allow(unsafe_code)]

use std::arch::asm;
use std::ops::Range;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::time::{Duration, Instant};

use crate::cache::ENGINE;
use crate::ending::gate::{LEFT, STAYS, STOPPING, phase};
use crate::signals::{self, frame};
use crate::state::{LEAVING, State};
use crate::syscalls::{filter, limits};
use crate::{ending, invalidate, loader, record, sys, tls};

/// How long threads are waited for. One that comes later, from a system call that nothing interrupts, follows then.
const LIMIT: Duration = Duration::from_secs(2);
/// Between two looks at what others do.
const PAUSE: Duration = Duration::from_micros(200);

/// The process runs natively from the thread's address on, because of `what` is there, and has room at `free`. Returns
/// if a signal must be delivered first.
pub fn leave(state: &mut State, what: &str, free: Option<Range<u64>>) {
    signals::block_all(state);
    if state.pending & !(1 << LEAVING) != 0 {
        return;
    }
    let claimed = phase(state).compare_exchange(STAYS, STOPPING, AcqRel, Acquire);
    if claimed.is_err() {
        return follow(state);
    }
    signals::restart_when_stopped();
    let all_stopped = stop_others(state);
    let name = String::from_utf8_lossy(loader::program()).into_owned();
    sys::complain(&format!(
        "{name} cannot be recorded any longer ({what}): it runs natively from here on"
    ));
    end_recording(state);
    memory_for_native();
    // A thread that comes later is in the engine, and may look into the tables.
    if let Some(range) = free.filter(|_| all_stopped) {
        let arguments = [range.start, range.end - range.start, 0, 0, 0, 0];
        // SAFETY: tables and cache, which no thread uses any more.
        unsafe { sys::call(libc::SYS_munmap, arguments) };
    }
    signals::for_native(state.process);
    limits::for_native();
    phase(state).store(LEFT, Release);
    depart(state)
}

/// If the thread's process leaves: waits at the gate, and runs natively.
pub fn follow(state: &mut State) {
    if phase(state).load(Acquire) == STAYS {
        return;
    }
    signals::block_all(state);
    state.pending &= !(1 << LEAVING);
    if state.pending != 0 {
        return;
    }
    state.at_gate.store(1, Release);
    while phase(state).load(Acquire) != LEFT {
        wait(state);
    }
    depart(state)
}

fn wait(state: &State) {
    if ending::is_stopped(state) {
        ending::park(state);
    }
    std::thread::sleep(PAUSE);
}

/// Waits until the process's other threads are at the gate; whether they are.
fn stop_others(state: &State) -> bool {
    let deadline = Instant::now() + LIMIT;
    loop {
        let mut waiting = false;
        for other in ending::others(state) {
            // SAFETY: blocks are never unmapped.
            let (stopped, tid) = unsafe { ((*other).at_gate.load(Acquire) != 0, (*other).tid) };
            waiting |= !stopped && ending::interrupt(tid);
        }
        if !waiting || Instant::now() > deadline {
            return !waiting;
        }
        wait(state);
    }
}

/// Completes the process's journal; another one is expected, so that the profile says what is missing.
fn end_recording(state: &mut State) {
    let next = record::successor(state);
    for other in ending::others(state) {
        // SAFETY: blocks are never unmapped; a thread at the gate does not use its tracer.
        let other = unsafe { &mut *other };
        if other.at_gate.load(Acquire) != 0 {
            record::end_thread(other);
        }
    }
    record::replaced(state, next.as_ref(), None);
}

/// Gives the program's code the protection that the program has asked for.
fn memory_for_native() {
    invalidate::release_all();
    for (range, writable) in ENGINE.lock().source.regions.all() {
        let write = if writable { libc::PROT_WRITE } else { 0 };
        let prot = (libc::PROT_READ | libc::PROT_EXEC | write) as u64;
        let arguments = [range.start, range.end - range.start, prot, 0, 0, 0];
        // SAFETY: the program's memory, as it was asked for; the engine does not write there any more.
        unsafe { sys::call(libc::SYS_mprotect, arguments) };
    }
}

/// Continues natively with the thread's state.
fn depart(state: &mut State) -> ! {
    sys::set_signal_mask(!0);
    for held in state.held.iter_mut().filter_map(Option::take) {
        signals::send_again_natively(&held);
    }
    if state.no_timestamp {
        let set = [libc::PR_SET_TSC as u64, libc::PR_TSC_SIGSEGV as u64];
        // SAFETY: the engine reads no clock in this thread any more.
        unsafe { sys::call(libc::SYS_prctl, [set[0], set[1], 0, 0, 0, 0]) };
    }
    let frame = frame::leak(state);
    filter::for_native(state.filters);
    let (fs, gs) = (state.guest_fs, state.guest_gs);
    // SAFETY: the engine is not used in this thread any more; the kernel loads registers, mask and stack of handlers
    // from the frame.
    unsafe {
        tls::set_fs(fs);
        asm!("wrgsbase {gs}", "mov rsp, {frame}", "syscall", "ud2",
            gs = in(reg) gs, frame = in(reg) frame, in("rax") libc::SYS_rt_sigreturn,
            options(noreturn))
    }
}
