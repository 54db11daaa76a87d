//! The frame of a signal handler on the program's stack, in the kernel's layout.

use crate::state::{RAX, RDI, RDX, RSI, RSP, Signal, State};

use super::action::Action;
use super::{bit, blockable};
use crate::guest;
use crate::xstate::{LEGACY, Layout};

/// Words of the frame: return address, context, signal information.
const WORDS: usize = 1 + 38 + 16;
const FLAGS: usize = 1;
const STACK: usize = 3;
const REGISTERS: usize = 6;
const RIP: usize = REGISTERS + 16;
const RFLAGS: usize = REGISTERS + 17;
const SEGMENTS: usize = REGISTERS + 18;
const ERROR: usize = REGISTERS + 19;
const TRAP: usize = REGISTERS + 20;
const OLD_MASK: usize = REGISTERS + 21;
const CR2: usize = REGISTERS + 22;
const XSTATE: usize = REGISTERS + 23;
const MASK: usize = 38;
const INFO: usize = 39;

/// Our registers in the kernel's order.
const ORDER: [usize; 16] = [8, 9, 10, 11, 12, 13, 14, 15, 7, 6, 5, 3, 2, 0, 1, 4];
/// Status, direction and alignment flags: those that a program may set by returning from a handler.
const SETTABLE: u64 = 0x4_0cd5;
/// Flags that are cleared for handlers: direction, resume, trap.
const CLEARED: u64 = 0x1_0500;
/// The flag of string instructions that go to lower addresses.
const DIRECTION: u64 = 0x400;
const MAGIC: u32 = 0x4650_5853;
const MAGIC_END: u32 = 0x4650_5845;
const DISARM: i32 = 1 << 31;

/// Size in bytes of the extended state of this processor.
fn xstate_len() -> usize {
    Layout::of_processor().map_or(LEGACY, |layout| layout.len)
}

/// Bytes of it in a frame of the kernel.
fn in_frames() -> usize {
    Layout::of_processor().map_or(LEGACY, |layout| layout.in_frames)
}

fn on_altstack(state: &State) -> bool {
    let (base, size, flags) = state.altstack;
    flags & DISARM == 0 && state.regs[RSP].wrapping_sub(base).wrapping_sub(1) < size
}

/// The program's alternate stack as `sigaltstack` reports it.
pub fn altstack(state: &State) -> [u64; 3] {
    let (base, size, flags) = state.altstack;
    let status = match () {
        () if size == 0 => libc::SS_DISABLE,
        () if on_altstack(state) => libc::SS_ONSTACK,
        () => 0,
    };
    [base, (flags & DISARM | status) as u32 as u64, size]
}

/// The frame, and the extended state at `area`, to which it points.
fn contents(
    state: &State,
    signal: &Signal,
    restorer: u64,
    mask: u64,
    area: u64,
) -> ([u64; WORDS], Vec<u8>) {
    let len = in_frames();
    let mut bytes = state.xstate.0[..xstate_len()].to_vec();
    bytes.resize(len, 0);
    bytes[464..512].fill(0);
    bytes[464..468].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[468..472].copy_from_slice(&(len as u32 + 4).to_le_bytes());
    bytes[472..480].copy_from_slice(&state.xmask.to_le_bytes());
    bytes[480..484].copy_from_slice(&(len as u32).to_le_bytes());
    bytes.extend(MAGIC_END.to_le_bytes());
    let mut frame = [0_u64; WORDS];
    frame[0] = restorer;
    // Flags: the context has extended state, and the stack segment is to be restored.
    frame[FLAGS] = 7;
    frame[STACK..STACK + 3].copy_from_slice(&altstack(state));
    for (n, &register) in ORDER.iter().enumerate() {
        frame[REGISTERS + n] = state.regs[register];
    }
    frame[RIP] = state.pc;
    frame[RFLAGS] = state.rflags;
    frame[SEGMENTS] = 0x33 | 0x2b << 48;
    frame[ERROR] = signal.trap[1];
    frame[TRAP] = signal.trap[0];
    frame[OLD_MASK] = mask;
    frame[CR2] = signal.cr2;
    frame[XSTATE] = area;
    frame[MASK] = mask;
    frame[INFO..].copy_from_slice(&signal.info);
    (frame, bytes)
}

/// A frame with the thread's state, as the kernel takes it back; returns the stack pointer for this. It is never freed.
pub fn leak(state: &State) -> u64 {
    let room = vec![0_u64; WORDS + 8 + in_frames() / 8 + 2].leak();
    let begin = room.as_ptr() as u64;
    let area = (begin + 8 * WORDS as u64 + 63) & !63;
    let (frame, bytes) = contents(state, &Signal::NONE, 0, state.mask, area);
    room[..WORDS].copy_from_slice(&frame);
    let from = (area - begin) as usize / 8;
    for (word, bytes) in room[from..].iter_mut().zip(bytes.chunks(8)) {
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_le_bytes(whole);
    }
    begin + 8
}

/// Builds the frame and continues at the handler. False if the stack has no room for it.
pub fn push(state: &mut State, signal: &Signal, action: &Action, mask: u64) -> bool {
    let (base, size, flags) = state.altstack;
    let mut sp = state.regs[RSP].wrapping_sub(128);
    let mut alternate = on_altstack(state);
    if action.flags & libc::SA_ONSTACK as u64 != 0 && size != 0 && !alternate {
        sp = base.wrapping_add(size);
        alternate = true;
    }
    let area = sp.wrapping_sub(in_frames() as u64 + 4) & !63;
    sp = (area.wrapping_sub(8 * WORDS as u64) & !15).wrapping_sub(8);
    if alternate && sp.wrapping_sub(base).wrapping_sub(1) >= size {
        return false;
    }
    let (frame, bytes) = contents(state, signal, action.restorer, mask, area);
    if !guest::write_bytes(area, &bytes) || !guest::write(sp, &frame) {
        return false;
    }
    if flags & DISARM != 0 {
        state.altstack = (0, 0, 0);
    }
    state.regs[RSP] = sp;
    state.regs[RAX] = 0;
    state.regs[RDI] = signal.number as u64;
    state.regs[RSI] = sp + 8 * INFO as u64;
    state.regs[RDX] = sp + 8 * FLAGS as u64;
    state.rflags &= !CLEARED;
    state.pc = action.handler;
    let own = if action.flags & libc::SA_NODEFER as u64 == 0 {
        bit(signal.number)
    } else {
        0
    };
    state.mask = blockable(state.mask | action.mask | own);
    true
}

/// Whether the frame at a handler's return sets the flag by which the processor stops after each instruction.
pub fn sets_trap_flag(state: &State) -> bool {
    const TRAP_FLAG: u64 = 0x100;
    let flags = guest::read::<u64>((state.regs[RSP] - 8).wrapping_add(8 * RFLAGS as u64));
    flags.is_some_and(|flags| flags & TRAP_FLAG != 0)
}

/// Restores the state from the frame at a handler's return. False if there is none.
pub fn pop(state: &mut State) -> bool {
    let Some(frame) = guest::read::<[u64; WORDS]>(state.regs[RSP] - 8) else {
        return false;
    };
    for (n, &register) in ORDER.iter().enumerate() {
        state.regs[register] = frame[REGISTERS + n];
    }
    state.pc = frame[RIP];
    state.rflags = state.rflags & !SETTABLE | frame[RFLAGS] & SETTABLE;
    state.down = state.rflags & DIRECTION;
    state.mask = blockable(frame[MASK]);
    set_altstack(state, &[frame[STACK], frame[STACK + 1], frame[STACK + 2]]);
    let at = frame[XSTATE];
    if at == 0 {
        state.xstate.0[512..520].fill(0);
        return true;
    }
    let Some(mut legacy) = guest::read::<[u8; LEGACY]>(at) else {
        return false;
    };
    let magic = legacy[464..468] == MAGIC.to_le_bytes();
    let mut present = 3;
    if magic && let Some(header) = legacy[512..520].first_chunk::<8>() {
        present = u64::from_le_bytes(*header) & state.xmask;
    }
    legacy[512..520].copy_from_slice(&present.to_le_bytes());
    legacy[520..576].fill(0);
    // Clear control bits that processors reject.
    legacy[26] = 0;
    legacy[27] = 0;
    let mut stored = vec![0; if magic { xstate_len() } else { LEGACY }];
    if !guest::read_bytes(at, &mut stored) {
        return false;
    }
    stored[..LEGACY].copy_from_slice(&legacy);
    state.xstate.0[..stored.len()].copy_from_slice(&stored);
    true
}

/// Sets the alternate stack from a `stack_t`.
pub fn set_altstack(state: &mut State, stack: &[u64; 3]) {
    let flags = stack[1] as i32;
    state.altstack = if flags & libc::SS_DISABLE != 0 {
        (0, 0, 0)
    } else {
        (stack[0], stack[2], flags & DISARM)
    };
}

/// `sigaltstack`; a failure is a negated `errno`.
pub fn sigaltstack(state: &mut State, new: u64, old: u64) -> i64 {
    const SMALLEST: u64 = 2048;
    let before = altstack(state);
    if new != 0 {
        let Some(stack) = guest::read::<[u64; 3]>(new) else {
            return -i64::from(libc::EFAULT);
        };
        let flags = stack[1] as i32;
        if on_altstack(state) {
            return -i64::from(libc::EPERM);
        }
        // One of these, not several.
        if ![0, libc::SS_ONSTACK, libc::SS_DISABLE].contains(&(flags & !DISARM)) {
            return -i64::from(libc::EINVAL);
        }
        if flags & libc::SS_DISABLE == 0 && stack[2] < SMALLEST {
            return -i64::from(libc::ENOMEM);
        }
        set_altstack(state, &stack);
    }
    if old != 0 && !guest::write(old, &before) {
        return -i64::from(libc::EFAULT);
    }
    0
}
