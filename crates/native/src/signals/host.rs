//! The signal handler called by the kernel.
//!
//! It runs on its own stack. In the engine it records the signal and blocks the others; the dispatcher checks for
//! signals before it enters the cache, and the assembly before it makes a system call. In the cache, a fault is raised
//! by an instruction of the program at a known point, whose state is taken as it is; for other signals the thread is
//! single-stepped to the next such point.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::sync::LazyLock;

use libc::{siginfo_t, ucontext_t};

use super::{FAULTS, bit, blocking, repeated};
use crate::cache::ENGINE;
use crate::crossing::{Places, places};
use crate::ending::machine::{Place, Reaction, on_signal as on_signal_while_ending};
use crate::layout::CODE;
use crate::record::turns;
use crate::state::{ASYNCHRONOUS, ENDING, FAULT, LEAVING, Signal, State, Stepping, current};
use crate::{ending, guest, invalidate, sys, tls, xstate};

static PLACES: LazyLock<Places> = LazyLock::new(places);

/// Computes in advance what the handler must not compute.
pub fn prepare() {
    LazyLock::force(&PLACES);
}

/// The trap flag.
const TF: i64 = 0x100;
/// The direction flag.
const DF: i64 = 0x400;
/// Index of each of our registers in the kernel's context.
const ORDER: [usize; 16] = [13, 14, 12, 11, 15, 10, 9, 8, 0, 1, 2, 3, 4, 5, 6, 7];
const RIP: usize = libc::REG_RIP as usize;
const EFLAGS: usize = libc::REG_EFL as usize;

/// Called by the kernel.
///
/// # Safety
/// Only the kernel calls it, in a thread whose gs is its state.
pub unsafe extern "C" fn on_signal(number: i32, info: *const siginfo_t, context: *mut c_void) {
    // The kernel does not reset the program's alignment check flag.
    // SAFETY: sets flags that compiled code does not rely on.
    unsafe { std::arch::asm!("push 0x202", "popfq") };
    // SAFETY: the kernel passes valid structures; the thread is one of the program's.
    let (info, context, state) = unsafe { (&*info, &mut *context.cast::<ucontext_t>(), current()) };
    let mut rip = context.uc_mcontext.gregs[RIP] as u64;
    if let Some(reached) = repeated::reached(state, rip) {
        context.uc_mcontext.gregs[RIP] = reached as i64;
        rip = reached;
    }
    if !CODE.contains(&rip) {
        in_engine(number, info, context, state);
        return;
    }
    let guest_fs = tls::fs();
    // SAFETY: what follows uses thread-local storage of the engine, and the program's fs is put back.
    unsafe { tls::set_fs(state.engine_fs) };
    if !in_cache(number, info, context, state, guest_fs) {
        // SAFETY: back to the cache.
        unsafe { tls::set_fs(guest_fs) };
    }
}

/// Whether the signal was raised by an instruction, not sent: see [`super::sent`].
fn is_fault(number: i32, info: &siginfo_t) -> bool {
    info.si_code > 0 && FAULTS.contains(&number)
}

/// Whether the processor raised it after a single step.
fn is_step(number: i32, info: &siginfo_t) -> bool {
    const TRACE: i32 = 2;
    number == libc::SIGTRAP && matches!(info.si_code, TRACE | libc::SI_KERNEL)
}

/// Single-steps the thread when the handler returns.
fn step(context: &mut ucontext_t, state: &mut State, stepping: Stepping) {
    let rip = context.uc_mcontext.gregs[RIP] as *const u8;
    // An operand prefix may come first.
    // SAFETY: the next instruction in the cache, and an exit follows each.
    let code = unsafe { [rip.read(), rip.add(1).read()] };
    const STORE_FLAGS: u8 = 0x9c;
    state.flags_stored =
        code[0] == STORE_FLAGS || (matches!(code[0], 0x66 | 0x48) && code[1] == STORE_FLAGS);
    state.stepping = stepping;
    if let Some(entry) = repeated::elsewhere(state, rip as u64) {
        context.uc_mcontext.gregs[RIP] = entry as i64;
        context.uc_mcontext.gregs[EFLAGS] &= !TF;
        return;
    }
    context.uc_mcontext.gregs[EFLAGS] |= TF;
}

/// After a step over an instruction that stores the flags: the program must not see, or load again, the trap flag.
fn clear_stored_flag(context: &ucontext_t, state: &mut State) {
    if std::mem::take(&mut state.flags_stored) {
        let at = context.uc_mcontext.gregs[libc::REG_RSP as usize] as u64;
        if let Some(flags) = guest::read::<u16>(at) {
            guest::write(at, &(flags & !(TF as u16)));
        }
    }
}

fn taken(number: i32, info: &siginfo_t, context: &ucontext_t) -> Signal {
    let registers = &context.uc_mcontext.gregs;
    let code = super::sent::original(info.si_code);
    let word = |register: i32| registers[register as usize] as u64;
    // SAFETY: siginfo_t has 128 bytes without padding that matters.
    let mut info = unsafe { std::ptr::from_ref(info).cast::<[u64; 16]>().read() };
    info[1] = info[1] >> 32 << 32 | u64::from(code as u32);
    Signal {
        number,
        info,
        trap: [word(libc::REG_TRAPNO), word(libc::REG_ERR)],
        cr2: word(libc::REG_CR2),
    }
}

fn keep(state: &mut State, signal: Signal, which: usize, context: &mut ucontext_t) {
    state.pending |= 1 << which;
    state.signals[which] = Some(signal);
    block(state, context);
}

/// Blocks signals after the handler returns.
fn block(state: &mut State, context: &mut ucontext_t) {
    state.all_blocked = true;
    // SAFETY: the kernel's mask has 8 bytes.
    unsafe {
        (&raw mut context.uc_sigmask)
            .cast::<u64>()
            .write(blocking())
    };
}

/// Handles a signal sent from elsewhere. A fault signal is held if the program blocks it or another signal is pending.
fn arrived(state: &mut State, signal: Signal, context: &mut ucontext_t) {
    if ending::gate::is_request(state, &signal) {
        state.pending |= 1 << LEAVING;
        block(state, context);
        return;
    }
    let blocked = state.mask & bit(signal.number) != 0;
    if (blocked || state.signals[ASYNCHRONOUS].is_some()) && FAULTS.contains(&signal.number) {
        let free = state.held.iter_mut().find(|held| held.is_none());
        if let Some(held) = free {
            *held = Some(signal);
        }
        return;
    }
    keep(state, signal, ASYNCHRONOUS, context);
}

fn in_engine(number: i32, info: &siginfo_t, context: &mut ucontext_t, state: &mut State) {
    let rip = context.uc_mcontext.gregs[RIP] as u64;
    let call = PLACES.calling.contains(&rip) || rip == PLACES.called;
    let place = if call { Place::Call } else { Place::Engine };
    match on_signal_while_ending(ending::part(state), place, is_fault(number, info)) {
        Reaction::Handle => {}
        Reaction::Wait => ending::park(state),
        Reaction::Later => {
            state.pending |= 1 << ENDING;
            return;
        }
        Reaction::Ignore => return,
    }
    let returning = PLACES.returning.iter().find(|range| range.contains(&rip));
    if is_step(number, info) && state.stepping != Stepping::No {
        if returning.is_some() {
            // Back to the cache, where stepping continues.
            return;
        }
        // The thread left the cache by itself.
        state.stepping = Stepping::No;
        context.uc_mcontext.gregs[EFLAGS] &= !TF;
        return;
    }
    if is_fault(number, info) {
        if rip == PLACES.copy {
            let address = context.uc_mcontext.gregs[libc::REG_CR2 as usize] as u64;
            if number != libc::SIGSEGV || !invalidate::written(address) {
                context.uc_mcontext.gregs[RIP] = PLACES.copy_fault as i64;
            }
            return;
        }
        sys::give_up(&format!("signal {number} in the engine at {rip:#x}"));
    }
    let signal = taken(number, info, context);
    arrived(state, signal, context);
    if state.pending == 0 {
        return;
    }
    if PLACES.entering.contains(&rip) {
        context.uc_mcontext.gregs[RIP] = PLACES.leave as i64;
    } else if PLACES.calling.contains(&rip) || was_cut_short(rip, context, state) {
        context.uc_mcontext.gregs[RIP] = PLACES.interrupted as i64;
    } else if let Some(range) = returning.filter(|_| state.stepping == Stepping::No) {
        context.uc_mcontext.gregs[RIP] = range.start as i64;
    } else if PLACES.light_returning.contains(&rip) {
        context.uc_mcontext.gregs[RIP] = PLACES.light_returning.start as i64;
    }
}

/// Whether a system call has failed only because the thread is to run natively: it is made again.
fn was_cut_short(rip: u64, context: &ucontext_t, state: &State) -> bool {
    let result = context.uc_mcontext.gregs[libc::REG_RAX as usize];
    let failed = rip == PLACES.called && result == -i64::from(libc::EINTR);
    failed && state.pending == 1 << LEAVING
}

/// Handles a signal in the cache; returns whether the thread leaves the cache.
fn in_cache(
    number: i32,
    info: &siginfo_t,
    context: &mut ucontext_t,
    state: &mut State,
    guest_fs: u64,
) -> bool {
    let fault = is_fault(number, info);
    if on_signal_while_ending(ending::part(state), Place::Cache, fault) == Reaction::Wait {
        take_registers(state, &context.uc_mcontext.gregs);
        turns::interrupted(state, None);
        ending::park(state);
    }
    let rip = context.uc_mcontext.gregs[RIP] as u64;
    if is_step(number, info) && state.stepping != Stepping::No {
        clear_stored_flag(context, state);
        // Code after an instruction that has written code may have changed.
        let written = state.stepping == Stepping::OverWrite;
        let left = leave(context, state, guest_fs, written);
        if !left {
            let stepping = state.stepping;
            step(context, state, stepping);
        }
        return left;
    }
    if is_fault(number, info) {
        let address = context.uc_mcontext.gregs[libc::REG_CR2 as usize] as u64;
        if number == libc::SIGSEGV && invalidate::written(address) {
            // Execute this instruction, then leave the fragment.
            block(state, context);
            step(context, state, Stepping::OverWrite);
            return false;
        }
        let signal = taken(number, info, context);
        state.stepping = Stepping::No;
        context.uc_mcontext.gregs[EFLAGS] &= !TF;
        keep(state, signal, FAULT, context);
        if is_step(number, info) {
            // The program has set the trap flag: its trap is reported at the next point, and the flag is cleared.
            let left = leave(context, state, guest_fs, false);
            if !left {
                step(context, state, Stepping::ToPoint);
            }
            return left;
        }
        if !leave(context, state, guest_fs, true) {
            sys::give_up(&format!("signal {number} in translated code at {rip:#x}"));
        }
        return true;
    }
    let signal = taken(number, info, context);
    arrived(state, signal, context);
    if state.pending == 0 || leave(context, state, guest_fs, false) {
        return state.pending != 0;
    }
    step(context, state, Stepping::ToPoint);
    false
}

/// Leaves for the dispatcher if the program's state is known here. Unless it must leave `now`, the accesses of the next
/// instruction must not be recorded yet.
fn leave(context: &mut ucontext_t, state: &mut State, guest_fs: u64, now: bool) -> bool {
    let registers = &mut context.uc_mcontext.gregs;
    let at = registers[RIP] as u64;
    let mut engine = ENGINE.lock();
    let found = engine.point(at);
    let Some((pc, point)) = found.filter(|(_, point)| now || !point.recorded) else {
        return false;
    };
    if point.recorded {
        engine.abandon_path(at);
    }
    drop(engine);
    state.stepping = Stepping::No;
    registers[EFLAGS] &= !TF;
    // The engine runs with the direction flag clear; the program gets its own back.
    state.rflags = registers[EFLAGS] as u64;
    registers[EFLAGS] &= !DF;
    state.pc = pc;
    take_registers(state, registers);
    if let Some((register, slot)) = point.borrowed {
        state.regs[usize::from(register)] = state.slots[usize::from(slot)];
    }
    for register in (0..16).filter(|register| point.lost >> register & 1 != 0) {
        state.regs[register] = state.borrowed[register];
    }
    turns::interrupted(state, point.recorded.then_some(pc));
    state.guest_fs = guest_fs;
    take_xstate(state, context.uc_mcontext.fpregs.cast());
    context.uc_mcontext.gregs[RIP] = PLACES.leave as i64;
    true
}

/// Copies the general registers.
fn take_registers(state: &mut State, registers: &[i64; 23]) {
    for (register, &place) in state.regs.iter_mut().zip(&ORDER) {
        *register = registers[place] as u64;
    }
}

/// Copies extended state from the kernel's frame.
fn take_xstate(state: &mut State, from: *const u8) {
    const MAGIC: u32 = 0x4650_5853;
    // SAFETY: the kernel stored at least 512 bytes, and says behind how many more.
    let (magic, len) = unsafe {
        (
            from.add(464).cast::<u32>().read(),
            from.add(480).cast::<u32>().read(),
        )
    };
    let len = if magic == MAGIC { len as usize } else { 512 };
    let xstate = &mut state.xstate.0;
    xstate[512..576].fill(0);
    // SAFETY: the bytes are there, and the area is big enough.
    unsafe { std::ptr::copy_nonoverlapping(from, xstate.as_mut_ptr(), len.min(xstate::BYTES)) };
    let mut present = 3;
    if magic == MAGIC
        && let Some(header) = xstate[512..520].first_chunk::<8>()
    {
        present = u64::from_le_bytes(*header) & state.xmask;
    }
    xstate[512..520].copy_from_slice(&present.to_le_bytes());
    xstate[520..576].fill(0);
}
