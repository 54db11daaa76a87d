//! Decodes a block: instructions from one address on, past branches not taken and along jumps, until the next address
//! is unknown.
#![allow(unsafe_code)]

use std::collections::HashSet;

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register,
};

use crate::cache::Engine;
use crate::sys;

/// A decoded instruction and the position of its displacement.
pub struct Decoded {
    /// The instruction.
    pub instruction: Instruction,
    /// Its bytes.
    pub bytes: [u8; 15],
    /// Offset of a 32-bit displacement, if it has one.
    pub displacement: usize,
}

/// How a block ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It continues at an address.
    Jump(u64),
    /// A direct call, the last instruction.
    Call(u64),
    /// An indirect call, the last instruction.
    CallIndirect,
    /// An indirect jump, the last instruction.
    JumpIndirect,
    /// A return, the last instruction.
    Return,
    /// A system call, the last instruction.
    SystemCall,
    /// `int3`, the last instruction.
    Breakpoint,
    /// There is no instruction at an address.
    NoCode(u64),
    /// An instruction that cannot be translated.
    Unsupported(u64),
}

/// A block.
pub struct Block {
    /// Its address.
    pub pc: u64,
    /// Its instructions in order of execution.
    pub instructions: Vec<Decoded>,
    /// How it ends.
    pub end: End,
    /// Pages it was decoded from.
    pub pages: Vec<u64>,
}

/// Largest number of instructions in a block.
const INSTRUCTIONS: usize = 192;
/// Largest number of conditional branches in a block.
const BRANCHES: usize = 4;

/// Decodes the block at `pc`, after making pages read-only that the program may write to.
pub fn decode(engine: &mut Engine, pc: u64) -> Block {
    let mut block = Block {
        pc,
        instructions: Vec::new(),
        end: End::Jump(pc),
        pages: Vec::new(),
    };
    let mut seen = HashSet::new();
    let mut at = pc;
    let mut branches = 0;
    loop {
        if block.instructions.len() >= INSTRUCTIONS || !seen.insert(at) {
            block.end = End::Jump(at);
            return block;
        }
        let Some(decoded) = instruction(engine, at, &mut block.pages) else {
            block.end = End::NoCode(at);
            return block;
        };
        let instruction = decoded.instruction;
        if let Some(end) = special(&instruction) {
            if !matches!(end, End::Unsupported(_)) {
                block.instructions.push(decoded);
            }
            block.end = end;
            return block;
        }
        at = instruction.next_ip();
        let end = match instruction.flow_control() {
            FlowControl::Next => None,
            FlowControl::UnconditionalBranch => {
                at = instruction.near_branch_target();
                if branches < BRANCHES {
                    continue;
                }
                block.end = End::Jump(at);
                return block;
            }
            FlowControl::ConditionalBranch => {
                branches += 1;
                let counts =
                    instruction.is_loop() || instruction.is_loopcc() || instruction.is_jcx_short();
                (branches >= BRANCHES || counts).then_some(End::Jump(at))
            }
            FlowControl::Call => Some(End::Call(instruction.near_branch_target())),
            FlowControl::IndirectCall => Some(End::CallIndirect),
            FlowControl::IndirectBranch => Some(End::JumpIndirect),
            FlowControl::Return => Some(End::Return),
            // It faults, so the code after it is rarely reached.
            FlowControl::Exception | FlowControl::Interrupt | FlowControl::XbeginXabortXend => {
                Some(End::Jump(at))
            }
        };
        block.instructions.push(decoded);
        if let Some(end) = end {
            block.end = end;
            return block;
        }
    }
}

/// Instructions that end a block independent of their control flow.
fn special(instruction: &Instruction) -> Option<End> {
    let at = instruction.ip();
    let unsupported = Some(End::Unsupported(at));
    match instruction.code() {
        Code::Syscall => return Some(End::SystemCall),
        Code::Int3 => return Some(End::Breakpoint),
        Code::Int_imm8 if instruction.immediate8() != 0x80 => return None,
        Code::Int_imm8 | Code::Sysenter => return unsupported,
        Code::Jmp_rel32_64 | Code::Jmp_rel8_64 | Code::Call_rel32_64 => return None,
        _ => {}
    }
    let gs_operand = instruction.segment_prefix() == Register::GS
        && (0..instruction.op_count()).any(|n| instruction.op_kind(n) == OpKind::Memory);
    let gs_register = (0..instruction.op_count()).any(|n| {
        instruction.op_kind(n) == OpKind::Register && instruction.op_register(n) == Register::GS
    });
    if gs_operand || gs_register {
        return unsupported;
    }
    match instruction.mnemonic() {
        Mnemonic::Rdgsbase | Mnemonic::Wrgsbase | Mnemonic::Xbegin | Mnemonic::Iretq => unsupported,
        _ => match instruction.flow_control() {
            FlowControl::Return if instruction.mnemonic() != Mnemonic::Ret => unsupported,
            FlowControl::Call if !instruction.is_call_near() => unsupported,
            FlowControl::IndirectCall if !instruction.is_call_near_indirect() => unsupported,
            FlowControl::IndirectBranch if !instruction.is_jmp_near_indirect() => unsupported,
            FlowControl::UnconditionalBranch if !instruction.is_jmp_short_or_near() => unsupported,
            _ => None,
        },
    }
}

fn instruction(engine: &mut Engine, at: u64, pages: &mut Vec<u64>) -> Option<Decoded> {
    let end = engine.regions.end(at, 15)?;
    let len = (end - at).min(15) as usize;
    watch(engine, at, pages);
    let mut bytes = [0; 15];
    // SAFETY: the program's memory maps these bytes as executable, hence readable.
    unsafe { std::ptr::copy_nonoverlapping(at as *const u8, bytes.as_mut_ptr(), len) };
    let mut decoder = Decoder::with_ip(64, &bytes[..len], at, DecoderOptions::NONE);
    let mut instruction = decoder.decode();
    if instruction.is_invalid() {
        return None;
    }
    let last = instruction.next_ip() - 1;
    if sys::page_down(last) != sys::page_down(at) {
        watch(engine, last, pages);
        // SAFETY: as above; its second page cannot change any more.
        unsafe { std::ptr::copy_nonoverlapping(at as *const u8, bytes.as_mut_ptr(), len) };
        decoder = Decoder::with_ip(64, &bytes[..len], at, DecoderOptions::NONE);
        instruction = decoder.decode();
        if instruction.is_invalid() {
            return None;
        }
    }
    let displacement = decoder
        .get_constant_offsets(&instruction)
        .displacement_offset();
    Some(Decoded {
        instruction,
        bytes,
        displacement,
    })
}

/// Records the page of an address; makes it read-only if the program may write to it.
fn watch(engine: &mut Engine, at: u64, pages: &mut Vec<u64>) {
    let page = sys::page_down(at);
    if pages.contains(&page) {
        return;
    }
    pages.push(page);
    let writable = engine
        .regions
        .find(at)
        .is_some_and(|region| region.writable);
    if writable && engine.protected.insert(page) {
        let arguments = [page, sys::PAGE, libc::PROT_READ as u64, 0, 0, 0];
        // SAFETY: the program's page; a write to it makes it writable again.
        unsafe { sys::call(libc::SYS_mprotect, arguments) };
    }
}
