//! Repeated string instructions in the way of a signal. A single step makes one iteration of them, so a copy of
//! gigabytes would be stepped for hours. Instead, the thread executes such an instruction outside the cache, where a
//! breakpoint follows it.
#![allow(unsafe_code)]

use std::arch::global_asm;
use std::ops::Range;

use crate::state::State;

/// Bytes of an entry of the table: an instruction, the breakpoint, and what fills it up.
const ENTRY: u64 = 8;

unsafe extern "C" {
    static native_repeated: u8;
    static native_repeated_end: u8;
}

global_asm!(
    r#"
    .text
    .globl native_repeated, native_repeated_end
    .macro native_repeated_entry prefix, instruction:req
    \prefix \instruction
    int3
    .balign 8, 0xcc
    .endm
    .balign 8
native_repeated:
    .irp instruction, movsb, movsw, movsd, movsq, stosb, stosw, stosd, stosq, lodsb, lodsw, lodsd, lodsq
    native_repeated_entry rep, \instruction
    .endr
    .irp instruction, cmpsb, cmpsw, cmpsd, cmpsq, scasb, scasw, scasd, scasq
    native_repeated_entry repe, \instruction
    native_repeated_entry repne, \instruction
    .endr
    /* The same with the prefixes in the order in which most assemblers write them. */
    .irp opcode, 0xa5, 0xab, 0xad, 0xa7, 0xaf
    native_repeated_entry , ".byte 0x66, 0xf3, \opcode"
    .endr
    .irp opcode, 0xa7, 0xaf
    native_repeated_entry , ".byte 0x66, 0xf2, \opcode"
    .endr
native_repeated_end:
"#
);

/// The table of instructions.
fn table() -> Range<u64> {
    (&raw const native_repeated) as u64..(&raw const native_repeated_end) as u64
}

/// The bytes of an entry up to the breakpoint.
fn instruction(entry: u64) -> &'static [u8] {
    const BREAKPOINT: u8 = 0xcc;
    // SAFETY: an entry of the table.
    let bytes = unsafe { std::slice::from_raw_parts(entry as *const u8, ENTRY as usize) };
    let len = bytes.iter().position(|&byte| byte == BREAKPOINT);
    &bytes[..len.unwrap_or(0)]
}

/// Where the thread executes the instruction at `rip` in the cache as a whole, if it is a repeated one.
pub fn elsewhere(state: &mut State, rip: u64) -> Option<u64> {
    let mut entries = table().step_by(ENTRY as usize);
    let entry = entries.find(|&entry| {
        let known = instruction(entry);
        // SAFETY: the next instruction in the cache, and an exit follows each.
        known == unsafe { std::slice::from_raw_parts(rip as *const u8, known.len()) }
    })?;
    state.repeated = rip;
    Some(entry)
}

/// If `rip` is in the table: the place in the cache that the thread has reached.
pub fn reached(state: &State, rip: u64) -> Option<u64> {
    let table = table();
    if !table.contains(&rip) {
        return None;
    }
    let entry = table.start + (rip - table.start) / ENTRY * ENTRY;
    match rip - entry {
        0 => Some(state.repeated),
        // After the breakpoint.
        _ => Some(state.repeated + instruction(entry).len() as u64),
    }
}
