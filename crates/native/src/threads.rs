//! Threads and processes of the program: each thread has a block of memory with its state, the engine's stack and
//! thread-local storage.
#![allow(unsafe_code)]

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::cache::ENGINE;
use crate::crossing::{INTERRUPTED, native_clone, native_end};
use crate::lock::Lock;
use crate::signals::{self, Process, host_mask, set_host_mask};
use crate::state::{R8, R10, RAX, RCX, RDI, RDX, RSI, RSP, State, XSTATE};
use crate::{dispatch, guest, heap, sys, tls};

/// Bytes of the engine's stack.
const STACK: usize = 256 << 10;
/// Bytes of the stack of our signal handler.
const SIGNAL_STACK: usize = 64 << 10;
const GUARD: usize = sys::PAGE as usize;

/// All blocks allocated so far.
static BLOCKS: Lock<Vec<usize>> = Lock::new(Vec::new());

/// The states of all threads, some of which may have ended.
pub fn all() -> Vec<*const State> {
    let blocks = BLOCKS.lock();
    blocks
        .iter()
        .map(|&state| state as *const State)
        .filter(|&state| {
            // SAFETY: blocks are never unmapped.
            unsafe { (*state).free.load(Acquire) == 0 }
        })
        .collect()
}

/// A block for a new thread; null if memory is exhausted.
fn block() -> *mut State {
    let mut blocks = BLOCKS.lock();
    for &state in blocks.iter() {
        let state = state as *mut State;
        // SAFETY: blocks are never unmapped.
        let free = unsafe { &(*state).free };
        if free.compare_exchange(1, 0, Acquire, Relaxed).is_ok() {
            return state;
        }
    }
    let state_len = size_of::<State>().next_multiple_of(64);
    let len = GUARD + STACK + GUARD + SIGNAL_STACK + state_len + tls::size();
    let base = heap::map(len.next_multiple_of(GUARD)) as u64;
    if base == 0 {
        return std::ptr::null_mut();
    }
    for guard in [base, base + (GUARD + STACK) as u64] {
        // SAFETY: pages of the new mapping.
        unsafe { sys::call(libc::SYS_mprotect, [guard, GUARD as u64, 0, 0, 0, 0]) };
    }
    let state = (base + (GUARD + STACK + GUARD + SIGNAL_STACK) as u64) as *mut State;
    blocks.push(state as usize);
    state
}

/// The engine's stack of a block: bottom and size.
fn stack(state: *const State) -> (u64, u64) {
    let bottom = state as u64 - (SIGNAL_STACK + GUARD + STACK) as u64;
    (bottom, STACK as u64)
}

/// Prepares a block for a thread of `process`.
fn fresh(process: &'static Process) -> *mut State {
    let state = block();
    if state.is_null() {
        return state;
    }
    let state_len = size_of::<State>().next_multiple_of(64);
    let storage = state as u64 + state_len as u64;
    // SAFETY: the block is ours; its state consists of numbers except for the reference, which is set at once.
    unsafe {
        (storage as *mut u8).write_bytes(0, tls::size());
        state.cast::<u8>().write_bytes(0, size_of::<State>());
        (&raw mut (*state).process).write(process);
        (&raw mut (*state).signals).write([None; 2]);
        (&raw mut (*state).held).write([None; 2]);
        (&raw mut (*state).stepping).write(crate::state::Stepping::No);
        (&raw mut (*state).inside).write(AtomicU64::new(0));
        (*state).this = state as u64;
        (*state).engine_fs = tls::build(storage);
        (*state).xmask = XSTATE & std::arch::x86_64::_xgetbv(0);
        (*state).rflags = 0x202;
        (*state).all_blocked = true;
        // Initial control words of x87 and SSE.
        let xstate = &mut (*state).xstate.0;
        xstate[0..2].copy_from_slice(&0x37f_u16.to_le_bytes());
        xstate[24..28].copy_from_slice(&0x1f80_u32.to_le_bytes());
    }
    state
}

/// Runs the program in the calling thread, the first, on its own stack.
pub fn first(process: &'static Process, pc: u64, sp: u64, mask: u64) -> ! {
    let state = fresh(process);
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
            top = in(reg) bottom + len, start = sym native_thread_start, in("rdi") state,
            options(noreturn));
    }
}

/// Entry point of each thread, on the engine's stack with the engine's fs.
///
/// # Safety
/// Called once for each block, in its thread, with signals blocked.
pub unsafe extern "C" fn native_thread_start(state: *mut State) -> ! {
    let stack: [u64; 3] = [state as u64 - SIGNAL_STACK as u64, 0, SIGNAL_STACK as u64];
    // SAFETY: gs is reserved for us; the signal stack is part of the block.
    unsafe {
        std::arch::asm!("wrgsbase {}", in(reg) state, options(nostack, preserves_flags));
        let stack = &raw const stack as u64;
        sys::call(libc::SYS_sigaltstack, [stack, 0, 0, 0, 0, 0]);
        dispatch::run(&mut *state)
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
    if !has(libc::CLONE_VM) {
        return fork(state, number, &mut request);
    }
    let process = if has(libc::CLONE_SIGHAND) {
        state.process
    } else {
        Process::new(*state.process.actions.lock())
    };
    let child = fresh(process);
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
    let result = call(number, &request, child);
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
fn call(number: i64, request: &Request, child: *mut State) -> i64 {
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
    unsafe { native_clone(number, &arguments, child) }
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
    let heap = heap::hold();
    let result = call(number, request, std::ptr::null_mut());
    drop(heap);
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
