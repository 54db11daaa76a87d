//! Calls, returns, indirect branches and the ends of blocks.

use iced_x86::{Code, FlowControl, Instruction, MemoryOperand, OpKind, Register};

use super::copy::Copier;
use super::decode::{Block, End};
use super::landing::{SLOT_RCX, SLOT_TARGET};
use crate::fragment::{Branch, Version};
use crate::layout::{COUNTING, JUMPS, MISSED_JUMP, MISSED_RETURN, RETURNS, VECTOR_EXIT};
use crate::state::{self, RCX, exit};

impl Copier<'_> {
    fn push(&mut self, value: u64) {
        self.code.put(&[0x68]);
        self.code.put32(value as i32);
        if i32::try_from(value).is_err() {
            self.code.put(&[0xc7, 0x44, 0x24, 0x04]); // mov dword [rsp + 4], high half
            self.code.put32((value >> 32) as i32);
        }
    }

    /// Address of a table for this version of the code.
    fn table(&self, table: u64) -> i32 {
        let distance = if self.version == Version::Counting {
            COUNTING
        } else {
            0
        };
        (table + distance) as i32
    }

    /// Jumps to the landing for the target in rcx; the program's rcx is in its slot.
    fn jump_to_target(&mut self) {
        self.code.save(RCX, SLOT_TARGET);
        if self.version == Version::Noting {
            return self.code.jump_to(MISSED_JUMP);
        }
        self.code.put(&[0x0f, 0xb7, 0xc9]); // movzx ecx, cx
        self.code.put(&[0xff, 0x24, 0xcd]); // jmp [rcx * 8 + JUMPS]
        self.code.put32(self.table(JUMPS));
    }

    /// Stores rcx in its slot, before the branch at `ip`.
    fn spare_rcx(&mut self, ip: u64) {
        self.point(ip, None);
        self.code.save(RCX, SLOT_RCX);
        self.point(ip, None);
    }

    /// Loads the target of an indirect branch into rcx, whose value is stored in its slot.
    fn target(&mut self, instruction: &Instruction) {
        self.spare_rcx(instruction.ip());
        if instruction.op0_kind() == OpKind::Register {
            let register = instruction.op0_register().full_register().number();
            if register != RCX {
                self.code.copy(RCX, register);
            }
            return;
        }
        let absolute = instruction.is_ip_rel_memory_operand();
        let mut operand = MemoryOperand::new(
            instruction.memory_base(),
            instruction.memory_index(),
            instruction.memory_index_scale(),
            instruction.memory_displacement64() as i64,
            instruction.memory_displ_size(),
            false,
            instruction.segment_prefix(),
        );
        let near = |target: u64| (target.wrapping_sub(self.code.pc()) as i64).abs() < 0x7fff_0000;
        if absolute && !near(instruction.ip_rel_memory_address()) {
            self.code.load(RCX, instruction.ip_rel_memory_address());
            operand = MemoryOperand::with_base(Register::RCX);
            self.point(instruction.ip(), Some((RCX, SLOT_RCX)));
        }
        if let Ok(load) = Instruction::with2(Code::Mov_r64_rm64, Register::RCX, operand) {
            self.encode(&load);
        }
    }

    /// A return, which removes `parameters` bytes of the stack in addition to the return address.
    fn ret(&mut self, ip: u64, parameters: u16) {
        self.spare_rcx(ip);
        self.count_at_end(ip);
        self.code.put(&[0x59]); // pop rcx
        if parameters > 0 {
            self.code.put(&[0x48, 0x8d, 0xa4, 0x24]); // lea rsp, [rsp + parameters]
            self.code.put32(i32::from(parameters));
            self.jump_to_target();
            return;
        }
        self.return_to_target();
    }

    /// Instruction number `at`: a call, a return or an indirect branch that is usually followed by the instruction at
    /// `next`, which comes next in this block.
    pub(super) fn go_on(&mut self, at: usize, instruction: &Instruction, next: u64) {
        self.settle();
        let ip = instruction.ip();
        let branch = match instruction.flow_control() {
            FlowControl::Call => {
                self.point(ip, None);
                self.push(instruction.next_ip());
                self.recorded = !self.owed.is_empty();
                return self.point(next, None);
            }
            FlowControl::Return => {
                self.spare_rcx(ip);
                self.code.put(&[0x59]); // pop rcx
                Branch::Return
            }
            _ => {
                self.target(instruction);
                self.point(ip, Some((RCX, SLOT_RCX)));
                if instruction.flow_control() == FlowControl::IndirectCall {
                    self.push(instruction.next_ip());
                }
                Branch::Jump
            }
        };
        // The difference, without changing flags.
        self.code
            .address(RCX, Some(RCX), None, (next as i32).wrapping_neg());
        let over = self.code.skip_if_rcx_is_zero();
        let elsewhere = self.stubs.pc();
        self.code.jump_to(elsewhere);
        self.code.land(over);
        self.code.restore(RCX, SLOT_RCX);
        self.recorded = !self.owed.is_empty();
        self.point(next, None);
        self.stubs.address(RCX, Some(RCX), None, next as i32);
        self.take_back_owed(true, true);
        let leaving = self.counts.leaving.get(at).copied().unwrap_or_default();
        if !leaving.is_empty() {
            self.count_elsewhere(leaving);
        }
        std::mem::swap(&mut self.code, &mut self.stubs);
        match branch {
            Branch::Jump => self.jump_to_target(),
            Branch::Return => self.return_to_target(),
        }
        std::mem::swap(&mut self.code, &mut self.stubs);
    }

    /// Jumps to the landing for the target in rcx, which is below the stack pointer, too; the program's rcx is in its
    /// slot.
    fn return_to_target(&mut self) {
        if self.version == Version::Noting {
            return self.code.jump_to(MISSED_RETURN);
        }
        self.code.put(&[0x0f, 0xb7, 0xc9]); // movzx ecx, cx
        self.code.put(&[0xff, 0x24, 0xcd]); // jmp [rcx * 8 + RETURNS]
        self.code.put32(self.table(RETURNS));
    }

    pub(super) fn leave(&mut self, pc: u64, why: u64) {
        self.code.set_field(state::PC, pc);
        self.code.set_field(state::EXIT, why);
        self.code.jump_by(VECTOR_EXIT);
    }

    /// The end of a block.
    pub(super) fn end(&mut self, block: &Block) {
        self.settle();
        let last = block.instructions.last().map(|last| &last.instruction);
        match (block.end, last) {
            (End::Jump(target), _) => {
                self.recorded = false;
                self.point(target, None);
                self.exit(None, target);
            }
            (End::NoCode(at), _) => {
                self.recorded = false;
                self.point(at, None);
                self.leave(at, exit::NO_CODE);
            }
            (End::Unsupported(at), _) => {
                self.recorded = false;
                self.point(at, None);
                self.leave(at, exit::UNSUPPORTED);
            }
            (End::Call(target), Some(last)) => {
                self.point(last.ip(), None);
                self.push(last.next_ip());
                self.recorded = false;
                self.point(target, None);
                self.exit(None, target);
            }
            (End::CallIndirect, Some(last)) => {
                self.target(last);
                self.point(last.ip(), Some((RCX, SLOT_RCX)));
                self.push(last.next_ip());
                self.jump_to_target();
            }
            (End::JumpIndirect, Some(last)) => {
                self.target(last);
                self.jump_to_target();
            }
            (End::Return, Some(last)) => {
                let parameters = if last.op_count() > 0 {
                    last.immediate16()
                } else {
                    0
                };
                self.ret(last.ip(), parameters);
            }
            (End::SystemCall, Some(last)) => {
                self.point(last.ip(), None);
                self.leave(last.next_ip(), exit::SYSCALL);
            }
            (End::Breakpoint, Some(last)) => {
                self.point(last.ip(), None);
                self.leave(last.next_ip(), exit::BREAKPOINT);
            }
            // Such an end has a last instruction.
            (_, None) => self.leave(block.pc, exit::UNSUPPORTED),
        }
    }
}
