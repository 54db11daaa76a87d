//! Memory of the program's threads: each has a block with the engine's stack, a stack for signals, thread-local storage
//! and its state. While accesses are recorded, the table of the thread's page counters follows, so that translated code
//! finds counters at a constant distance from the state ([`crate::state::COUNTERS`]).
#![allow(unsafe_code)]

use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicU64, AtomicUsize};

use numaloc_trace::pages::PAGE_SHIFT;
use numaloc_trace::shadow::Shadow;

use crate::ending::group::Group;
use crate::lock::Lock;
use crate::signals::action::Process;
use crate::state::{self, Start, State};
use crate::xstate::Layout;
use crate::{heap, sys, tls};

/// Bytes of the engine's stack.
const STACK: usize = 256 << 10;
/// Bytes of the stack of our signal handler.
const SIGNAL_STACK: usize = 64 << 10;

/// All blocks allocated so far.
pub static BLOCKS: Lock<Vec<usize>> = Lock::new(Vec::new());

/// Of how many of them, the first ones, a forked process gets no counters.
static WIPED: AtomicUsize = AtomicUsize::new(0);
/// Most of them, because each is a mapping more, of which a process may have 65,530.
const MOST_WIPED: usize = 8 << 10;

/// Prepares the counters of all `blocks` for a fork, since the child does not need them: to copy the tables of 500
/// threads takes ten times as long as to fork them natively.
pub fn before_fork(blocks: &[usize]) {
    let known = WIPED.load(Relaxed);
    let new = blocks.get(known..blocks.len().min(MOST_WIPED));
    for &state in new.unwrap_or_default() {
        counters(state as *const State).wipe_on_fork();
    }
    WIPED.fetch_max(blocks.len().min(MOST_WIPED), Relaxed);
}

/// In the child: clears the other counters of `blocks`.
pub fn after_fork(blocks: &[usize]) {
    for &state in blocks.get(WIPED.load(Relaxed)..).unwrap_or_default() {
        counters(state as *const State).clear();
    }
}

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

/// A block for a new thread, with page counters if it is `counted`; null if memory is exhausted.
fn block(counted: bool) -> *mut State {
    let mut blocks = BLOCKS.lock();
    for &state in blocks.iter() {
        let state = state as *mut State;
        // SAFETY: blocks are never unmapped.
        let free = unsafe { &(*state).free };
        if free.compare_exchange(1, 0, Acquire, Relaxed).is_ok() {
            return state;
        }
    }
    // One mapping: there are 65,530 of them by default. What lies below is not mapped, so the engine's stack needs no
    // guard.
    let before = STACK + SIGNAL_STACK + storage_len();
    let len = before + state::COUNTERS as usize;
    let base = match counted {
        true => Shadow::reserve_behind(len, PAGE_SHIFT).unwrap_or(0),
        false => heap::map(len, 1 << 16) as u64,
    };
    if base == 0 {
        return std::ptr::null_mut();
    }
    let state = (base + before as u64) as *mut State;
    blocks.push(state as usize);
    state
}

/// Bytes of thread-local storage, before the state.
fn storage_len() -> usize {
    tls::size().next_multiple_of(sys::PAGE as usize)
}

/// End of the stack for signals of a block.
fn signal_stack_end(state: *const State) -> u64 {
    state as u64 - storage_len() as u64
}

/// The engine's stack of a block: bottom and size.
pub fn stack(state: *const State) -> (u64, u64) {
    let bottom = signal_stack_end(state) - (SIGNAL_STACK + STACK) as u64;
    (bottom, STACK as u64)
}

/// The table behind a block for the thread's page counters: empty, or what another thread left, cleared.
pub fn counters(state: *const State) -> Shadow {
    let table = (state as u64 + state::COUNTERS as u64) as *mut AtomicU64;
    // SAFETY: `block` reserved it, and the block's thread is its only user.
    unsafe { Shadow::at(table, PAGE_SHIFT) }
}

/// Prepares a block for a thread of `group` with the actions of `process`; `counted`: with page counters, for all
/// threads or none.
pub fn fresh(
    process: &'static Process,
    group: &'static Group,
    start: Start,
    counted: bool,
) -> *mut State {
    let state = block(counted);
    if state.is_null() {
        return state;
    }
    let storage = signal_stack_end(state);
    // SAFETY: the block is ours; its state consists of numbers except for two pointers, which are set at once.
    unsafe {
        (storage as *mut u8).write_bytes(0, tls::size());
        state.cast::<u8>().write_bytes(0, size_of::<State>());
        (&raw mut (*state).process).write(process);
        (&raw mut (*state).group).write(group);
        (&raw mut (*state).pending_thread).write(None);
        (&raw mut (*state).former_mask).write(None);
        (&raw mut (*state).start).write(start);
        (&raw mut (*state).signals).write([None; 2]);
        (&raw mut (*state).held).write([None; 2]);
        (&raw mut (*state).stepping).write(crate::state::Stepping::No);
        (&raw mut (*state).inside).write(AtomicU64::new(0));
        (*state).this = state as u64;
        (*state).engine_fs = tls::build(storage);
        (*state).xmask = Layout::of_processor().map_or(3, |layout| layout.mask);
        (*state).rflags = 0x202;
        (*state).all_blocked = true;
        // Initial control words of x87 and SSE.
        let xstate = &mut (*state).xstate.0;
        xstate[0..2].copy_from_slice(&0x37f_u16.to_le_bytes());
        xstate[24..28].copy_from_slice(&0x1f80_u32.to_le_bytes());
    }
    state
}

/// Makes the calling thread the one of `state`: gs, and the stack of our signal handler.
///
/// # Safety
/// The block of `state` belongs to this thread alone.
pub unsafe fn enter_block(state: *mut State) {
    let end = signal_stack_end(state);
    let stack: [u64; 3] = [end - SIGNAL_STACK as u64, 0, SIGNAL_STACK as u64];
    // SAFETY: gs is reserved for us; the signal stack is part of the block.
    unsafe {
        std::arch::asm!("wrgsbase {}", in(reg) state, options(nostack, preserves_flags));
        let stack = &raw const stack as u64;
        sys::call(libc::SYS_sigaltstack, [stack, 0, 0, 0, 0, 0]);
        (*state).tid = sys::call(libc::SYS_gettid, [0; 6]) as u32;
    }
}
