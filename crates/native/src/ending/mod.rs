//! The end of a process: [`machine`] says in which steps, this module takes them.
//!
//! A process is a [`Group`] of threads. Processes may share an address space, and with it the engine (`CLONE_VM`): then
//! each ends its own threads, and the last completes the recording.
#![allow(unsafe_code)]

pub mod gate;
pub mod group;
pub mod machine;

use std::arch::asm;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::time::{Duration, Instant};

use crate::state::State;
use crate::{blocks, sys};
use group::Group;
use machine::Part;

/// How long threads are waited for: those that do not stop in time lose what they have not written yet.
const LIMIT: Duration = Duration::from_secs(2);

fn number(state: &State) -> u64 {
    std::ptr::from_ref(state) as u64
}

/// The thread's part in its process's end.
pub fn part(state: &State) -> Part {
    machine::part(state.group.ender.load(Acquire), number(state))
}

/// Whether another thread ends the process.
pub fn is_stopped(state: &State) -> bool {
    part(state) == Part::Stopped
}

/// Claims the end of the process for the calling thread, which has blocked all signals. Does not return if another
/// thread has claimed it.
pub fn claim(state: &State) {
    let me = number(state);
    let before = state.group.ender.compare_exchange(0, me, AcqRel, Acquire);
    if !machine::claim(before.unwrap_or_else(|before| before), me) {
        park(state);
    }
}

/// Waits for the end of the process, outside the tracer. Signals stay pending in the kernel.
pub fn park(state: &State) -> ! {
    sys::set_signal_mask(!0);
    state.parked.store(PARKED, Release);
    loop {
        // SAFETY: waits for nothing: the kernel ends the thread.
        unsafe { sys::call(libc::SYS_pause, [0; 6]) };
    }
}

/// The other threads of the process that have not ended.
pub fn others(state: &State) -> impl Iterator<Item = *mut State> {
    let (me, group) = (std::ptr::from_ref(state), state.group);
    let same = move |&other: &*const State| {
        !std::ptr::eq(other, me) && std::ptr::eq(group_of(other), group)
    };
    blocks::all()
        .into_iter()
        .filter(same)
        .map(<*const State>::cast_mut)
}

/// The group of a block, which another thread may be preparing: null before it has one.
fn group_of(state: *const State) -> *const Group {
    // SAFETY: blocks are never unmapped, and a reference is an address.
    unsafe {
        (&raw const (*state).group)
            .cast::<*const Group>()
            .read_volatile()
    }
}

/// Stops the other threads, or at least those that are recorded; returns those that wait outside their tracers. The
/// caller has claimed the end.
pub fn stop_others(state: &State, all: bool) -> Vec<*mut State> {
    stop(|| others(state), all)
}

/// Stops the other processes that share the memory and whose first thread, or any, is `meant` by its id. Returns their
/// threads, which wait outside their tracers for the end that the caller brings.
pub fn stop_processes(state: &State, meant: impl Fn(u32) -> bool) -> Vec<*mut State> {
    let me = number(state);
    let mut claimed: Vec<*const Group> = Vec::new();
    for other in blocks::all() {
        let group = group_of(other);
        // SAFETY: blocks are never unmapped; a group is freed only when no block refers to it.
        let (tid, alive) = unsafe {
            let alive = !group.is_null() && (*group).alive.load(Acquire) != 0;
            ((*other).tid, alive && !(*other).lent)
        };
        if alive && tid != 0 && !std::ptr::eq(group, state.group) && meant(tid) {
            // SAFETY: as above.
            let before = unsafe { (*group).ender.compare_exchange(0, me, AcqRel, Acquire) };
            if before.is_ok() {
                claimed.push(group);
            }
        }
    }
    let theirs = || {
        let all = blocks::all().into_iter();
        let theirs = all.filter(|&other| claimed.contains(&group_of(other)));
        theirs.map(<*const State>::cast_mut)
    };
    stop(theirs, true)
}

/// Stops threads, or at least those that are recorded; returns those that wait outside their tracers.
fn stop<T: Iterator<Item = *mut State>>(threads: impl Fn() -> T, all: bool) -> Vec<*mut State> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let (mut parked, mut waiting) = (Vec::new(), false);
        for other in threads() {
            // SAFETY: blocks are never unmapped.
            let (recording, stopped, tid) = unsafe {
                let other = &*other;
                (other.recording, is_outside(other), other.tid)
            };
            if stopped {
                parked.push(other);
            } else if recording || all {
                waiting |= interrupt(tid);
            }
        }
        if !waiting || Instant::now() > deadline {
            return parked;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// The thread waits for the process's end.
const PARKED: u32 = 1;
/// The thread is in a system call that nothing interrupts, outside its tracer.
const AWAY: u32 = 2;

/// Whether a thread waits outside its tracer; one that is in a system call will when it returns.
fn is_outside(other: &State) -> bool {
    let away = other.parked.compare_exchange(AWAY, PARKED, AcqRel, Acquire);
    away.is_ok() || away == Err(PARKED)
}

/// Makes a system call that nothing interrupts.
pub fn away<T>(state: &mut State, call: impl FnOnce(&mut State) -> T) -> T {
    state.parked.store(AWAY, Release);
    let result = call(state);
    if state
        .parked
        .compare_exchange(AWAY, 0, AcqRel, Acquire)
        .is_err()
    {
        park(state);
    }
    result
}

/// Sends a thread the signal that stops it; returns whether there is such a thread.
pub fn interrupt(tid: u32) -> bool {
    let arguments = [tid.into(), libc::SIGTRAP as u64, 0, 0, 0, 0];
    // SAFETY: a signal that the engine handles.
    tid == 0 || unsafe { sys::call(libc::SYS_tkill, arguments) } == 0
}

/// Whether another process uses the address space, and is not a child of `vfork` that runs in place of its parent.
pub fn is_shared(state: &State) -> bool {
    blocks::all().into_iter().any(|other| {
        let group = group_of(other);
        // SAFETY: blocks are never unmapped; a group is freed only when no block refers to it.
        let alive = || unsafe { !(*other).lent && (*group).alive.load(Acquire) != 0 };
        !std::ptr::eq(group, state.group) && !group.is_null() && alive()
    })
}

/// Frees the group of a process that has left the address space, unless threads that it created refer to it.
/// Returns whether it did.
///
/// # Safety
/// The calling thread does not use it any more.
pub unsafe fn free(group: &'static Group) -> bool {
    let blocks = blocks::BLOCKS.lock();
    let mut blocks = blocks.iter().map(|&block| block as *const State);
    if blocks.any(|block| std::ptr::eq(group_of(block), group)) {
        return false;
    }
    // SAFETY: from `Group::new`, and nothing refers to it.
    drop(unsafe { Box::from_raw(std::ptr::from_ref(group).cast_mut()) });
    true
}

/// Gives the block of a thread that waits for its end, and leaves the block as it is, to other threads.
pub fn release(other: &State) {
    other.inside.store(0, Release);
    other.free.store(1, Release);
}

/// Ends the process in the kernel. Other processes may use the blocks of its threads from then on.
pub fn exit(state: &State, status: u64) -> ! {
    sys::set_signal_mask(!0);
    if is_shared(state) {
        claim(state);
        stop_others(state, true);
    }
    for other in others(state) {
        // SAFETY: blocks are never unmapped; a thread that waits leaves its block as it is.
        let other = unsafe { &*other };
        if other.parked.load(Acquire) == PARKED {
            release(other);
        }
    }
    leave(state, libc::SYS_exit_group, status)
}

/// Ends the thread, or the process, with the block free for others.
pub fn leave(state: &State, call: i64, status: u64) -> ! {
    let unused = AtomicU32::new(0);
    // What a child of vfork runs on belongs to its parent.
    let free = if state.lent { &unused } else { &state.free };
    // SAFETY: does not use the stack after the block is free.
    unsafe {
        asm!(
            "mov dword ptr [{free}], 1",
            "syscall",
            "ud2",
            free = in(reg) free,
            in("rax") call,
            in("rdi") status,
            options(noreturn),
        )
    }
}
