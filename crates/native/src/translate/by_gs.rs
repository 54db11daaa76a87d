//! Memory operands that gs addresses. In the processor, the base of gs is the engine's, so such an operand is addressed
//! by a register that the instruction does not use, with the sum of the program's base and the operand's address.

use iced_x86::{Code, Instruction, MemoryOperand, OpKind, Register};

use super::copy::{Copier, unused};
use super::landing::{SLOT_FAR, SLOT_TARGET};
use crate::emit::Field;
use crate::state;

/// The form with a general operand of a load or store of rax at an address of 64 bits.
const fn general(code: Code) -> Code {
    match code {
        Code::Mov_AL_moffs8 => Code::Mov_r8_rm8,
        Code::Mov_AX_moffs16 => Code::Mov_r16_rm16,
        Code::Mov_EAX_moffs32 => Code::Mov_r32_rm32,
        Code::Mov_RAX_moffs64 => Code::Mov_r64_rm64,
        Code::Mov_moffs8_AL => Code::Mov_rm8_r8,
        Code::Mov_moffs16_AX => Code::Mov_rm16_r16,
        Code::Mov_moffs32_EAX => Code::Mov_rm32_r32,
        Code::Mov_moffs64_RAX => Code::Mov_rm64_r64,
        code => code,
    }
}

impl Copier<'_> {
    /// An instruction with such an operand.
    pub(super) fn by_gs(&mut self, instruction: &Instruction) {
        let [(base, at), (_, sum)] = unused(instruction);
        let ip = instruction.ip();
        self.point(ip, None);
        self.code.save(at, SLOT_FAR);
        self.offset(instruction, base, at);
        self.code.save(sum, SLOT_TARGET);
        self.code.with_field(Field::Load, sum, state::GUEST_GS);
        self.code.address(at, Some(at), Some((sum, 0)), 0);
        self.code.restore(sum, SLOT_TARGET);
        let mut changed = *instruction;
        changed.set_code(general(instruction.code()));
        for operand in 0..changed.op_count() {
            if changed.op_kind(operand) == OpKind::Memory {
                changed.set_segment_prefix(Register::None);
            }
        }
        changed.set_memory_base(base);
        if !instruction.is_vsib() {
            changed.set_memory_index(Register::None);
            changed.set_memory_index_scale(1);
        }
        changed.set_memory_displacement64(0);
        changed.set_memory_displ_size(0);
        self.point(ip, Some((at, SLOT_FAR)));
        self.encode(&changed);
        self.code.restore(at, SLOT_FAR);
    }

    /// Loads a register with the address of an operand without its segment, and without the index if that is a vector.
    fn offset(&mut self, instruction: &Instruction, register: Register, number: usize) {
        if instruction.is_ip_rel_memory_operand() {
            return self.code.load(number, instruction.ip_rel_memory_address());
        }
        let (base, index) = match instruction.is_vsib() {
            true => (instruction.memory_base(), Register::None),
            false => (instruction.memory_base(), instruction.memory_index()),
        };
        let displacement = instruction.memory_displacement64();
        let none = (base, index) == (Register::None, Register::None);
        if none {
            return self.code.load(number, displacement);
        }
        let operand = MemoryOperand::new(
            base,
            index,
            instruction.memory_index_scale(),
            displacement as i64,
            instruction.memory_displ_size(),
            false,
            Register::None,
        );
        if let Ok(address) = Instruction::with2(Code::Lea_r64_m, register, operand) {
            self.encode(&address);
        }
    }
}
