//! Code that compares what it was translated from with memory.

use super::checks::constant;
use super::copy::Copier;
use super::decode::{Block, Decoded};
use crate::state::{RCX, RDX, exit};

impl Copier<'_> {
    /// Compares what the block was translated from with memory, without changing flags. If it has changed, the thread
    /// leaves the cache.
    pub(super) fn compare_with_memory(&mut self, block: &Block) {
        let Some(checks) = &block.checks else { return };
        let pieces = checks.pieces();
        if pieces.is_empty() {
            return;
        }
        self.point(block.pc, None);
        let registers = [RCX, RDX];
        registers
            .into_iter()
            .for_each(|register| self.code.lend(register));
        self.lent.lost = 1 << RCX | 1 << RDX;
        let changed = self.stubs.pc();
        for (at, len, expected) in pieces {
            self.code.load(RCX, at);
            // Memory may be gone.
            self.point(block.pc, None);
            match len {
                8 => self.code.put(&[0x48, 0x8b, 0x09]), // mov rcx, [rcx]
                4 => self.code.put(&[0x8b, 0x09]),       // mov ecx, [rcx]
                2 => self.code.put(&[0x0f, 0xb7, 0x09]), // movzx ecx, word [rcx]
                _ => self.code.put(&[0x0f, 0xb6, 0x09]), // movzx ecx, byte [rcx]
            }
            self.code.load(RDX, expected.wrapping_neg());
            self.code.put(&[0x48, 0x8d, 0x0c, 0x11]); // lea rcx, [rcx + rdx]
            let over = self.code.skip_if_rcx_is_zero();
            self.code.jump_to(changed);
            self.code.land(over);
        }
        registers
            .into_iter()
            .for_each(|register| self.code.return_to_owner(register));
        self.lent.lost = 0;
        std::mem::swap(&mut self.code, &mut self.stubs);
        registers
            .into_iter()
            .for_each(|register| self.code.return_to_owner(register));
        self.leave(block.pc, exit::CHANGED);
        std::mem::swap(&mut self.code, &mut self.stubs);
    }

    /// Loads a register with a constant of the program's code as it is in memory. False if the instruction does
    /// something else, or its constants do not change.
    pub(super) fn load_constant(&mut self, decoded: &Decoded) -> bool {
        let instruction = &decoded.instruction;
        let Some(offset) = constant(instruction).filter(|_| self.loads_constants) else {
            return false;
        };
        let register = instruction.op0_register().full_register().number();
        self.point(instruction.ip(), None);
        self.code.load(register, instruction.ip() + offset as u64);
        self.code
            .load_through(register, instruction.len() - offset == 8);
        true
    }
}
