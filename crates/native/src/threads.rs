//! Threads and processes of the program.
#![allow(unsafe_code)]

use std::sync::atomic::Ordering::{Relaxed, Release};

use crate::blocks::{BLOCKS, fresh, stack};
use crate::cache::ENGINE;
use crate::crossing::{INTERRUPTED, native_clone, native_end};
use crate::signals::action::Process;
use crate::signals::{self, host_mask, set_host_mask};
use crate::state::{R8, R10, RAX, RCX, RDI, RDX, RSI, RSP, Start, State};
use crate::{guest, heap, invalidate, lock, record, sys, syscalls, tls};

/// Runs the program in the calling thread, the first, on its own stack.
pub fn first(process: &'static Process, start: Start, pc: u64, sp: u64, mask: u64) -> ! {
    let state = fresh(process, start, record::is_on());
    if state.is_null() {
        sys::give_up("no memory for the first thread");
    }
    // SAFETY: the block is not shared yet. The rest of the stack belongs to the program from now on.
    unsafe {
        (*state).pc = pc;
        (*state).regs[RSP] = sp;
        (*state).mask = mask;
        tls::set_fs((*state).engine_fs);
        let (bottom, len) = stack(state);
        std::arch::asm!("mov rsp, {top}", "xor ebp, ebp", "call {start}", "ud2",
            top = in(reg) bottom + len, start = in(reg) start, in("rdi") state,
            options(noreturn));
    }
}

/// A request of `clone` and its relatives: the words of `clone_args`.
struct Request {
    words: [u64; 32],
    len: u64,
}

const FLAGS: usize = 0;
const CHILD_TID: usize = 2;
const PARENT_TID: usize = 3;
const EXIT_SIGNAL: usize = 4;
const STACK_BASE: usize = 5;
const STACK_LEN: usize = 6;
const TLS: usize = 7;

fn request(state: &State, number: i64) -> Result<Request, i32> {
    let regs = &state.regs;
    let mut words = [0; 32];
    let mut len = 64;
    match number {
        libc::SYS_fork => words[EXIT_SIGNAL] = libc::SIGCHLD as u64,
        libc::SYS_vfork => {
            words[FLAGS] = (libc::CLONE_VM | libc::CLONE_VFORK) as u64;
            words[EXIT_SIGNAL] = libc::SIGCHLD as u64;
        }
        libc::SYS_clone => {
            words[FLAGS] = regs[RDI] & 0xffff_ff00;
            words[EXIT_SIGNAL] = regs[RDI] & 0xff;
            words[STACK_BASE] = regs[RSI];
            words[PARENT_TID] = regs[RDX];
            words[CHILD_TID] = regs[R10];
            words[TLS] = regs[R8];
        }
        _ => {
            len = regs[RSI];
            if len < 64 {
                return Err(libc::EINVAL);
            }
            if len > 256 || !len.is_multiple_of(8) {
                return Err(libc::E2BIG);
            }
            for (n, word) in words.iter_mut().take(len as usize / 8).enumerate() {
                *word = guest::read(regs[RDI] + 8 * n as u64).ok_or(libc::EFAULT)?;
            }
        }
    }
    Ok(Request { words, len })
}

/// `clone`, `clone3`, `fork`, `vfork`: returns a thread or process, or a negated `errno`.
pub fn clone(state: &mut State, number: i64) -> i64 {
    let mut request = match request(state, number) {
        Ok(request) => request,
        Err(errno) => return -i64::from(errno),
    };
    signals::block_all(state);
    if state.pending != 0 {
        return INTERRUPTED;
    }
    let flags = request.words[FLAGS];
    let has = |flag: i32| flags & flag as u64 != 0;
    if record::is_on() && has(libc::CLONE_VFORK) {
        // The child gets memory and a recording of its own.
        request.words[FLAGS] &= !((libc::CLONE_VM | libc::CLONE_VFORK) as u64);
        return fork(state, number, &mut request);
    }
    if !has(libc::CLONE_VM) {
        return fork(state, number, &mut request);
    }
    lock::share();
    invalidate::join_others(state);
    let process = if has(libc::CLONE_SIGHAND) {
        state.process
    } else {
        Process::new(*state.process.actions.lock())
    };
    let child = fresh(process, state.start, record::is_on());
    if child.is_null() {
        return -i64::from(libc::EAGAIN);
    }
    let (bottom, len) = stack(child);
    // SAFETY: the block is not shared yet.
    let c = unsafe { &mut *child };
    c.regs = state.regs;
    c.regs[RAX] = 0;
    c.rflags = state.rflags;
    c.pc = state.pc;
    c.mask = state.mask;
    c.xstate.0 = state.xstate.0;
    c.vforked = has(libc::CLONE_VFORK);
    if has(libc::CLONE_VFORK) {
        c.altstack = state.altstack;
    }
    if request.words[STACK_BASE] != 0 {
        c.regs[RSP] = request.words[STACK_BASE] + request.words[STACK_LEN];
    }
    c.guest_fs = if has(libc::CLONE_SETTLS) {
        request.words[TLS]
    } else {
        state.guest_fs
    };
    let fs = c.engine_fs;
    request.words[FLAGS] |= libc::CLONE_SETTLS as u64;
    request.words[STACK_BASE] = bottom;
    request.words[STACK_LEN] = len;
    request.words[TLS] = fs;
    let result = call(number, &request, child, state.start);
    if result < 0 || has(libc::CLONE_VFORK) {
        // A child of vfork has ended, or executes another program.
        // SAFETY: as above; its process is its own, and no thread has it any more.
        unsafe {
            (*child).free.store(1, Release);
            if !has(libc::CLONE_SIGHAND) {
                drop(Box::from_raw(std::ptr::from_ref(process).cast_mut()));
            }
        }
    }
    result
}

/// Makes the same call that the program made, because `clone3` may be missing where `clone` works.
fn call(number: i64, request: &Request, child: *mut State, start: Start) -> i64 {
    let words = &request.words;
    let (number, arguments) = if number == libc::SYS_clone3 {
        (number, [words.as_ptr() as u64, request.len, 0, 0, 0, 0])
    } else {
        let top = match words[STACK_BASE] {
            0 => 0,
            base => base + words[STACK_LEN],
        };
        let flags = words[FLAGS] | words[EXIT_SIGNAL];
        let (parent, child) = (words[PARENT_TID], words[CHILD_TID]);
        (libc::SYS_clone, [flags, top, parent, child, words[TLS], 0])
    };
    // SAFETY: the child has a stack and a state of its own, or a memory of its own.
    unsafe { native_clone(number, &arguments, child, start) }
}

fn fork(state: &mut State, number: i64, request: &mut Request) -> i64 {
    let settls = request.words[FLAGS] & libc::CLONE_SETTLS as u64 != 0;
    let sp = match request.words[STACK_BASE] {
        0 => state.regs[RSP],
        base => base + request.words[STACK_LEN],
    };
    let fs = request.words[TLS];
    request.words[FLAGS] &= !(libc::CLONE_SETTLS as u64);
    request.words[STACK_BASE] = 0;
    request.words[STACK_LEN] = 0;
    request.words[TLS] = 0;
    // Held across the fork, so that the child finds every lock free.
    let engine = ENGINE.lock();
    let actions = state.process.actions.lock();
    let blocks = BLOCKS.lock();
    let recorded = record::is_on().then(record::hold);
    let heap = heap::hold();
    let result = call(number, request, std::ptr::null_mut(), state.start);
    drop(heap);
    drop(recorded);
    if result == 0 {
        for &other in blocks.iter() {
            let other = other as *const State;
            if !std::ptr::eq(other, state) {
                // SAFETY: its thread stayed in the parent.
                unsafe {
                    (*other).inside.store(0, Relaxed);
                    (*other).free.store(1, Release);
                }
            }
        }
        invalidate::begin();
        syscalls::forked();
        state.vforked = false;
        state.regs[RSP] = sp;
        if settls {
            state.guest_fs = fs;
        }
    }
    drop(blocks);
    drop(actions);
    drop(engine);
    result
}

/// `exit`: ends the calling thread. The kernel clears its thread id and wakes the joining thread.
pub fn end(state: &mut State, status: u64) -> ! {
    signals::block_all(state);
    // No signal may arrive once the block belongs to another thread.
    set_host_mask(!0);
    let unused = std::sync::atomic::AtomicU32::new(0);
    let free = if state.vforked { &unused } else { &state.free };
    // SAFETY: does not use the stack after the block is free.
    unsafe { native_end(free, status) }
}

/// The process's initial mask; the engine's signals are unblocked from now on.
pub fn initial_mask() -> u64 {
    let mut mask = 0_u64;
    let arguments = [libc::SIG_SETMASK as u64, 0, (&raw mut mask) as u64, 8, 0, 0];
    // SAFETY: writes the mask.
    unsafe { sys::call(libc::SYS_rt_sigprocmask, arguments) };
    set_host_mask(host_mask(mask));
    mask
}

/// Sets registers as the kernel does after a system call that returned.
pub fn returned(state: &mut State, result: i64) {
    state.regs[RAX] = result as u64;
    state.regs[RCX] = state.pc;
    state.regs[crate::state::R11] = state.rflags;
}
