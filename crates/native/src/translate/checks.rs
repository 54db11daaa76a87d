//! What code that compares itself with memory compares: pure. It does so each time it begins, so a block is short, and
//! ends with an instruction that may write what follows.

use iced_x86::{Code, Instruction, InstructionInfoFactory, OpAccess, Register};

/// Bytes of the longest instruction.
pub const LONGEST: usize = 15;
/// Most instructions of a block.
const INSTRUCTIONS: usize = 16;

/// Bytes of an instruction, or of what is none.
struct Part {
    at: u64,
    len: usize,
    bytes: [u8; LONGEST],
    /// Where a constant begins that may change: the code loads it from memory.
    constant: Option<usize>,
}

/// What a block was translated from.
pub struct Checks {
    parts: Vec<Part>,
    /// Whether the block is on a stack, to which most of its stores go.
    on_stack: bool,
    /// Whether it only loads registers with constants, as compilers' code for nested functions does before it jumps.
    constants: bool,
    factory: InstructionInfoFactory,
}

impl Checks {
    /// Nothing, of a block that is on a stack or not.
    pub fn new(on_stack: bool) -> Self {
        Self {
            parts: Vec::new(),
            on_stack,
            constants: true,
            factory: InstructionInfoFactory::new(),
        }
    }

    /// Whether the block loads constants from memory that its code contains.
    pub fn loads_constants(&self) -> bool {
        self.constants
    }

    /// Adds the next instruction. Returns whether it must be the last of its block.
    pub fn add(&mut self, at: u64, instruction: &Instruction, bytes: &[u8]) -> bool {
        let len = match instruction.is_invalid() {
            true => bytes.len().min(LONGEST),
            false => instruction.len(),
        };
        let mut part = Part {
            at,
            len,
            bytes: [0; LONGEST],
            constant: constant(instruction),
        };
        part.bytes[..len].copy_from_slice(&bytes[..len]);
        let jumps = matches!(instruction.code(), Code::Jmp_rm64)
            && instruction.op0_register() != Register::None;
        let nothing = matches!(instruction.code(), Code::Endbr64 | Code::Nopd | Code::Nopw);
        self.constants &= part.constant.is_some() || jumps || nothing;
        self.parts.push(part);
        self.parts.len() >= INSTRUCTIONS || !instruction.is_invalid() && self.may_write(instruction)
    }

    /// Whether an instruction may write code of its block.
    fn may_write(&mut self, instruction: &Instruction) -> bool {
        let writes = |access: OpAccess| {
            use OpAccess::{CondWrite, ReadCondWrite, ReadWrite, Write};
            matches!(access, Write | CondWrite | ReadWrite | ReadCondWrite)
        };
        let used = self.factory.info(instruction).used_memory();
        let mut stores = used.iter().filter(|memory| writes(memory.access()));
        stores.any(|memory| self.on_stack || memory.base() != Register::RSP)
    }

    /// The bytes that must not change, in pieces of 8, 4, 2 and 1: address, length, bytes.
    pub fn pieces(&self) -> Vec<(u64, usize, u64)> {
        let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
        for part in &self.parts {
            let len = part.constant.filter(|_| self.constants).unwrap_or(part.len);
            let bytes = &part.bytes[..len];
            match runs.last_mut() {
                Some((at, run)) if *at + run.len() as u64 == part.at => run.extend(bytes),
                _ => runs.push((part.at, bytes.to_vec())),
            }
        }
        let mut pieces = Vec::new();
        for (mut at, run) in runs {
            let mut rest = &run[..];
            while !rest.is_empty() {
                let len = 1 << rest.len().ilog2().min(3);
                let mut word = [0; 8];
                word[..len].copy_from_slice(&rest[..len]);
                pieces.push((at, len, u64::from_le_bytes(word)));
                (at, rest) = (at + len as u64, &rest[len..]);
            }
        }
        pieces
    }
}

/// Where the constant of an instruction that loads a register with one begins.
pub fn constant(instruction: &Instruction) -> Option<usize> {
    let bytes = match instruction.code() {
        Code::Mov_r64_imm64 => 8,
        Code::Mov_r32_imm32 => 4,
        _ => return None,
    };
    instruction.len().checked_sub(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    fn checks(code: &[u8]) -> (Checks, bool) {
        let mut checks = Checks::new(false);
        let decoder = Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE);
        let mut last = false;
        for one in decoder {
            assert!(!last, "the last one");
            last = checks.add(one.ip(), &one, &code[(one.ip() - 0x1000) as usize..]);
        }
        (checks, last)
    }

    #[test]
    fn constants_of_code_that_only_jumps_may_change() {
        // mov r11, 1; mov r10, 2; jmp r11
        let mut code = vec![0x49, 0xbb, 1, 0, 0, 0, 0, 0, 0, 0];
        code.extend([0x49, 0xba, 2, 0, 0, 0, 0, 0, 0, 0, 0x49, 0xff, 0xe3]);
        let pieces = checks(&code).0.pieces();
        assert_eq!(
            pieces,
            [
                (0x1000, 2, 0xbb49),
                (0x100a, 2, 0xba49),
                (0x1014, 2, 0xff49),
                (0x1016, 1, 0xe3)
            ]
        );
        // inc eax as well
        code.splice(20..20, [0xff, 0xc0]);
        let pieces = checks(&code).0.pieces();
        assert_eq!(
            pieces.iter().map(|piece| piece.1).sum::<usize>(),
            code.len()
        );
        assert_eq!(pieces[0], (0x1000, 8, 0x01_bb49));
    }

    #[test]
    fn a_block_ends_where_it_may_write_what_follows() {
        // mov [rax], ecx; mov [rsp + 8], ecx; mov ecx, [rax]; rep stosb
        for (code, last) in [
            (&[0x89, 0x08][..], true),
            (&[0x89, 0x4c, 0x24, 0x08], false),
            (&[0x8b, 0x08], false),
            (&[0xf3, 0xaa], true),
        ] {
            assert_eq!(checks(code).1, last, "{code:x?}");
        }
        assert!(checks(&[0x90; INSTRUCTIONS]).1);
    }
}
