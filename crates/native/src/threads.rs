//! Threads and processes of the program.
#![allow(unsafe_code)]

use std::mem::offset_of;
use std::sync::atomic::Ordering::{Relaxed, Release};

use crate::blocks::{BLOCKS, after_fork, before_fork, fresh, stack};
use crate::cache::ENGINE;
use crate::crossing::{INTERRUPTED, native_clone};
use crate::ending::{self, group::Group};
use crate::signals::action::{self, Action, Process};
use crate::signals::{self, host_mask};
use crate::state::{ENDING, R8, R10, RAX, RCX, RDI, RDX, RSI, RSP, Start, State};
use crate::sys::PAGE;
use crate::{filters, guest, heap, invalidate, lock, record, sys, tls};

/// Runs the program in the calling thread, the first, on its own stack.
pub fn first(process: &'static Process, start: Start, pc: u64, sp: u64, mask: u64) -> ! {
    let state = fresh(process, Group::new(), start, record::is_on());
    if state.is_null() {
        sys::give_up("no memory for the first thread");
    }
    // SAFETY: the block is not shared yet. The rest of the stack belongs to the program from now on.
    unsafe {
        (*state).pc = pc;
        (*state).regs[RSP] = sp;
        (*state).mask = mask;
        (*state).filters = filters::initial();
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
    /// Whether the child begins without the program's handlers.
    clears: bool,
}

const FLAGS: usize = 0;
/// `CLONE_CLEAR_SIGHAND`: the child begins without handlers.
const CLEAR_HANDLERS: u64 = 1 << 32;
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
            len = arguments(&mut words, regs[RDI], regs[RSI])?;
            // The engine's stack takes the place of the program's: the kernel would not see what it rejects.
            if (words[STACK_BASE] == 0) != (words[STACK_LEN] == 0) {
                return Err(libc::EINVAL);
            }
        }
    }
    Ok(Request {
        words,
        len,
        clears: false,
    })
}

/// Reads the arguments of `clone3` at `at`; their number of bytes. As in the kernel, those that it does not know are 0.
fn arguments(words: &mut [u64], at: u64, len: u64) -> Result<u64, i32> {
    const LEAST: u64 = 64;
    let known = 8 * words.len() as u64;
    if len < LEAST {
        return Err(libc::EINVAL);
    }
    if len > PAGE {
        return Err(libc::E2BIG);
    }
    let whole = len.min(known) / 8;
    for (n, word) in words.iter_mut().take(whole as usize).enumerate() {
        *word = guest::read(at + 8 * n as u64).ok_or(libc::EFAULT)?;
    }
    for n in 8 * whole..len {
        let byte: u8 = guest::read(at + n).ok_or(libc::EFAULT)?;
        match words.get_mut(n as usize / 8) {
            Some(word) => *word |= u64::from(byte) << (8 * (n % 8)),
            None if byte != 0 => return Err(libc::E2BIG),
            None => {}
        }
    }
    Ok(len.min(known))
}

/// What a call has created: its id, or a negated `errno`.
pub enum Created {
    /// A thread of the process.
    Thread(i64),
    /// A process with a copy of the memory; 0 in this process.
    Copy(i64),
    /// A process that shares the memory.
    Sharing(i64),
}

/// `clone`, `clone3`, `fork`, `vfork`.
pub fn clone(state: &mut State, number: i64) -> Created {
    let mut request = match request(state, number) {
        Ok(request) => request,
        Err(errno) => return Created::Thread(-i64::from(errno)),
    };
    signals::block_all(state);
    if state.pending != 0 {
        return Created::Thread(INTERRUPTED);
    }
    let flags = request.words[FLAGS];
    let has = |flag: i32| flags & flag as u64 != 0;
    let thread = has(libc::CLONE_THREAD);
    // The kernel would drop the engine's handlers too. It refuses to drop handlers that are shared.
    request.clears = !has(libc::CLONE_SIGHAND) && flags & CLEAR_HANDLERS != 0;
    if request.clears {
        request.words[FLAGS] &= !CLEAR_HANDLERS;
    }
    match (has(libc::CLONE_VM), has(libc::CLONE_VFORK)) {
        (false, _) if !thread => Created::Copy(fork(state, number, &mut request)),
        (true, true) if !thread => Created::Sharing(lend(state, number, &mut request)),
        (true, _) if thread => Created::Thread(join(state, number, &mut request)),
        (true, _) => Created::Sharing(join(state, number, &mut request)),
        // The kernel refuses threads with a memory of their own.
        _ => Created::Thread(-i64::from(libc::EINVAL)),
    }
}

/// Signal actions and group of a process that shares the memory, or those of this process for a thread.
fn belongings(state: &State, request: &Request) -> (&'static Process, &'static Group) {
    let flags = request.words[FLAGS];
    let process = match flags & libc::CLONE_SIGHAND as u64 {
        0 => {
            let mut actions = *state.process.actions.lock();
            if request.clears {
                action::clear(&mut actions);
            }
            Process::new(actions)
        }
        _ => state.process,
    };
    let group = match flags & libc::CLONE_THREAD as u64 {
        0 => Group::new(),
        _ => state.group,
    };
    if !std::ptr::eq(group, state.group) {
        process.keep_defaults();
    }
    (process, group)
}

/// A thread, or a process that shares the memory and runs at the same time: both have a block of their own.
fn join(state: &mut State, number: i64, request: &mut Request) -> i64 {
    let flags = request.words[FLAGS];
    let has = |flag: i32| flags & flag as u64 != 0;
    lock::share();
    invalidate::join_others(state);
    let (process, group) = belongings(state, request);
    let child = fresh(process, group, state.start, record::is_on());
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
    c.no_timestamp = state.no_timestamp;
    c.xstate.0 = state.xstate.0;
    c.filters = state.filters;
    if !has(libc::CLONE_THREAD) {
        record::share(state, c);
        watch(request, group);
    }
    if request.words[STACK_BASE] != 0 {
        c.regs[RSP] = request.words[STACK_BASE] + request.words[STACK_LEN];
    }
    c.guest_fs = if has(libc::CLONE_SETTLS) {
        request.words[TLS]
    } else {
        state.guest_fs
    };
    c.guest_gs = state.guest_gs;
    let fs = c.engine_fs;
    request.words[FLAGS] |= libc::CLONE_SETTLS as u64;
    request.words[STACK_BASE] = bottom;
    request.words[STACK_LEN] = len;
    request.words[TLS] = fs;
    let result = call(number, request, child, state.start);
    if result < 0 {
        // SAFETY: no thread has the block.
        unsafe { (*child).free.store(1, Release) };
    } else if !has(libc::CLONE_THREAD) {
        record::shared(state);
    }
    result
}

/// Has the kernel note when a process leaves the memory that it shares, unless the program has it note that elsewhere.
fn watch(request: &mut Request, group: &'static Group) {
    let used = (libc::CLONE_CHILD_CLEARTID | libc::CLONE_CHILD_SETTID) as u64;
    if request.words[FLAGS] & used == 0 {
        request.words[FLAGS] |= libc::CLONE_CHILD_CLEARTID as u64;
        request.words[CHILD_TID] = group.alive.as_ptr() as u64;
    }
}

/// `vfork` and its relatives: the parent waits until its child ends or executes another program. Meanwhile the child
/// runs in its place: on its state, with its tracer, on the rest of its stack.
fn lend(state: &mut State, number: i64, request: &mut Request) -> i64 {
    /// Bytes of the parent's stack from here on that it still needs.
    const OWN: u64 = 16 << 10;
    /// Bytes that the child needs at least.
    const LEAST: u64 = 96 << 10;
    let here = 0_u64;
    let (bottom, _) = stack(state);
    let top = (&raw const here as u64 - OWN) & !63;
    if top < bottom + LEAST {
        return -i64::from(libc::EAGAIN);
    }
    let flags = request.words[FLAGS];
    let (process, group) = belongings(state, request);
    let kept = Kept::of(state);
    let creator = record::lend(state);
    if request.words[STACK_BASE] != 0 {
        state.regs[RSP] = request.words[STACK_BASE] + request.words[STACK_LEN];
    }
    if flags & libc::CLONE_SETTLS as u64 != 0 {
        state.guest_fs = request.words[TLS];
    }
    returned(state, 0);
    (state.process, state.group, state.lent) = (process, group, true);
    request.words[FLAGS] &= !(libc::CLONE_SETTLS as u64);
    request.words[STACK_BASE] = bottom;
    request.words[STACK_LEN] = top - bottom;
    request.words[TLS] = 0;
    let result = call(number, request, state, state.start);
    group.alive.store(0, Release);
    record::take_back(state, creator);
    kept.restore(state);
    if result >= 0 {
        record::shared(state);
    }
    // SAFETY: the child has left this memory.
    unsafe {
        if ending::free(group) && !std::ptr::eq(process, state.process) {
            process.free();
        }
    }
    result
}

/// A thread's state without its tracer, as bytes: what a child of vfork changes.
struct Kept(Vec<u8>);

impl Kept {
    const LEN: usize = offset_of!(State, seat);

    fn of(state: &State) -> Self {
        let bytes = std::ptr::from_ref(state).cast::<u8>();
        // SAFETY: the state's own bytes; none of its parts owns what it refers to, except one that is none here.
        Self(unsafe { std::slice::from_raw_parts(bytes, Self::LEN) }.to_vec())
    }

    fn restore(&self, state: &mut State) {
        let state = std::ptr::from_mut(state).cast::<u8>();
        // SAFETY: from `of`, for the same state.
        unsafe { state.copy_from_nonoverlapping(self.0.as_ptr(), Self::LEN) };
    }
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
    // The parent may wait with the engine's locks only if no other thread needs them.
    if record::threads() > 1 {
        request.words[FLAGS] &= !(libc::CLONE_VFORK as u64);
    }
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
    let mut actions = state.process.actions.lock();
    let blocks = BLOCKS.lock();
    if record::is_on() {
        before_fork(&blocks);
    }
    let recorded = record::is_on().then(record::hold);
    let heap = heap::hold();
    let result = call(number, request, std::ptr::null_mut(), state.start);
    drop(heap);
    drop(recorded);
    if result == 0 {
        if record::is_on() {
            after_fork(&blocks);
        }
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
        if request.clears {
            for number in action::clear(&mut actions) {
                signals::install(number, &Action::default());
            }
        }
        invalidate::begin();
        // Another thread may have been ending the parent.
        state.group = Group::new();
        state.pending &= !(1 << ENDING);
        state.lent = false;
        // SAFETY: no preconditions.
        state.tid = unsafe { sys::call(libc::SYS_gettid, [0; 6]) } as u32;
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
    sys::set_signal_mask(!0);
    ending::leave(state, libc::SYS_exit, status)
}

/// The process's initial mask; the engine's signals are unblocked from now on.
pub fn initial_mask() -> u64 {
    let mut mask = 0_u64;
    let arguments = [libc::SIG_SETMASK as u64, 0, (&raw mut mask) as u64, 8, 0, 0];
    // SAFETY: writes the mask.
    unsafe { sys::call(libc::SYS_rt_sigprocmask, arguments) };
    sys::set_signal_mask(host_mask(mask));
    mask
}

/// Sets registers as the kernel does after a system call that returned.
pub fn returned(state: &mut State, result: i64) {
    state.regs[RAX] = result as u64;
    state.regs[RCX] = state.pc;
    state.regs[crate::state::R11] = state.rflags;
}
