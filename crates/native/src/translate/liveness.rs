//! Which registers and flags the instructions of a block need: pure.

use iced_x86::{
    FlowControl, Instruction, InstructionInfo, InstructionInfoFactory, InstructionInfoOptions,
    Mnemonic, OpAccess, OpKind, Register, RflagsBits,
};

use super::decode::{Block, End};

/// Whether the first instructions of a block overwrite rcx before they read it. Branches, and whatever follows the
/// block, count as reading it.
pub fn rcx_is_dead(block: &Block) -> bool {
    let mut factory = InstructionInfoFactory::new();
    for decoded in &block.instructions {
        let instruction = &decoded.instruction;
        if instruction.flow_control() != FlowControl::Next {
            return false;
        }
        let options = InstructionInfoOptions::NO_MEMORY_USAGE;
        let mut overwritten = false;
        for used in factory.info_options(instruction, options).used_registers() {
            if used.register().full_register() != Register::RCX {
                continue;
            }
            let whole = matches!(used.register(), Register::RCX | Register::ECX);
            if used.access() != OpAccess::Write || !whole {
                return false;
            }
            overwritten = true;
        }
        if overwritten {
            return true;
        }
    }
    false
}

/// The flags that arithmetic changes.
const STATUS: u32 = RflagsBits::OF
    | RflagsBits::SF
    | RflagsBits::ZF
    | RflagsBits::AF
    | RflagsBits::CF
    | RflagsBits::PF;

/// What the program needs at an instruction: bits of general registers, and status flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Live {
    /// One bit for each general register.
    pub registers: u16,
    flags: u32,
}

impl Live {
    const ALL: Self = Self {
        registers: !0,
        flags: STATUS,
    };

    /// What either needs.
    fn or(self, other: Self) -> Self {
        Self {
            registers: self.registers | other.registers,
            flags: self.flags | other.flags,
        }
    }

    /// Whether a status flag is needed.
    pub fn flags(self) -> bool {
        self.flags != 0
    }

    /// Whether a register is needed.
    pub fn has(self, register: usize) -> bool {
        self.registers >> register & 1 != 0
    }

    /// What is needed before an instruction, if this is needed after it.
    fn before(self, instruction: &Instruction, info: &InstructionInfo) -> Self {
        let (mut written, mut read) = (0_u16, 0_u16);
        for used in info.used_registers() {
            let full = used.register().full_register();
            if !full.is_gpr64() {
                continue;
            }
            let bit = 1 << full.number();
            let whole = used.register().is_gpr64() || used.register().is_gpr32();
            match used.access() {
                OpAccess::Write if whole => written |= bit,
                OpAccess::None | OpAccess::NoMemAccess => {}
                _ => read |= bit,
            }
        }
        let changed = match leaves_flags(instruction) {
            true => 0,
            // Processors may keep flags that are undefined.
            false => instruction.rflags_modified() & !instruction.rflags_undefined(),
        };
        Self {
            registers: self.registers & !written | read,
            flags: self.flags & !changed | instruction.rflags_read() & STATUS,
        }
    }
}

/// Whether an instruction may leave the flags unchanged that it changes in general: a shift by 0, a comparison of
/// nothing.
fn leaves_flags(instruction: &Instruction) -> bool {
    use Mnemonic::{Rcl, Rcr, Rol, Ror, Sar, Shl, Shld, Shr, Shrd};
    let shift = matches!(
        instruction.mnemonic(),
        Rcl | Rcr | Rol | Ror | Sar | Shl | Shld | Shr | Shrd
    );
    let last = instruction.op_count().saturating_sub(1);
    let by_register = instruction.op_kind(last) == OpKind::Register;
    let repeated = instruction.has_rep_prefix() || instruction.has_repne_prefix();
    shift && (by_register || instruction.immediate(last) == 0)
        || instruction.is_string_instruction() && repeated
}

/// What is needed before each instruction of a block. `after` returns what is needed at an address outside it.
pub fn needed(
    block: &Block,
    factory: &mut InstructionInfoFactory,
    mut after: impl FnMut(u64) -> Live,
) -> Vec<Live> {
    let mut live = match block.end {
        End::Jump(target) | End::Call(target) => after(target),
        _ => Live::ALL,
    };
    let mut all = vec![live; block.instructions.len()];
    for (at, decoded) in block.instructions.iter().enumerate().rev() {
        let instruction = &decoded.instruction;
        if instruction.flow_control() == FlowControl::ConditionalBranch {
            live = live.or(after(instruction.near_branch_target()));
        }
        live = live.before(instruction, factory.info(instruction));
        all[at] = live;
    }
    all
}

/// What is needed before the first of some instructions, executed one after the other.
pub fn needed_by(instructions: &[Instruction], factory: &mut InstructionInfoFactory) -> Live {
    let straight = instructions
        .iter()
        .take_while(|instruction| instruction.flow_control() == FlowControl::Next)
        .count();
    let mut live = Live::ALL;
    for instruction in instructions[..straight].iter().rev() {
        live = live.before(instruction, factory.info(instruction));
    }
    live
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    fn before(code: &[u8]) -> Live {
        let instruction = Decoder::with_ip(64, code, 0, DecoderOptions::NONE).decode();
        let mut factory = InstructionInfoFactory::new();
        Live::ALL.before(&instruction, factory.info(&instruction))
    }

    #[test]
    fn a_register_is_dead_before_it_is_overwritten_as_a_whole() {
        // mov eax, ecx; mov al, cl; xor eax, eax; mov rax, [rax]
        assert!(!before(&[0x89, 0xc8]).has(0) && before(&[0x89, 0xc8]).has(1));
        assert!(before(&[0x88, 0xc8]).has(0));
        assert!(!before(&[0x31, 0xc0]).has(0));
        assert!(before(&[0x48, 0x8b, 0x00]).has(0));
    }

    #[test]
    fn what_instructions_need_ends_at_a_branch() {
        // add eax, ecx; jmp; and without the addition
        let code = [0x01, 0xc8, 0xeb, 0x00];
        let decode = |code: &[u8]| -> Vec<Instruction> {
            Decoder::with_ip(64, code, 0, DecoderOptions::NONE)
                .into_iter()
                .collect()
        };
        let mut factory = InstructionInfoFactory::new();
        assert!(!needed_by(&decode(&code), &mut factory).flags());
        assert!(needed_by(&decode(&code[2..]), &mut factory).flags());
    }

    #[test]
    fn flags_are_dead_before_an_instruction_that_changes_all_of_them() {
        // add; inc, which keeps the carry; adc, which reads it; mov; shl by cl, which may be by 0
        assert!(!before(&[0x01, 0xc8]).flags());
        assert!(before(&[0xff, 0xc0]).flags());
        assert!(before(&[0x11, 0xc8]).flags());
        assert!(before(&[0x89, 0xc8]).flags());
        assert!(before(&[0xd3, 0xe0]).flags());
    }
}
