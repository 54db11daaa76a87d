//! Which registers and flags the instructions of a block need: pure.

use iced_x86::{
    FlowControl, Instruction, InstructionInfo, InstructionInfoFactory, InstructionInfoOptions,
    Mnemonic, OpAccess, OpKind, Register, RflagsBits, UsedRegister,
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

    const NONE: Self = Self {
        registers: 0,
        flags: 0,
    };

    /// What both need.
    fn and(self, other: Self) -> Self {
        Self {
            registers: self.registers & other.registers,
            flags: self.flags & other.flags,
        }
    }

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
    fn before(self, effect: &Effect) -> Self {
        self.kept(effect).or(effect.needs)
    }

    /// What of this an instruction leaves as it was before.
    fn kept(self, effect: &Effect) -> Self {
        Self {
            registers: self.registers & !effect.changes.registers,
            flags: self.flags & !effect.changes.flags,
        }
    }
}

/// What an instruction needs and changes.
pub struct Effect {
    /// Registers and flags that it reads.
    needs: Live,
    /// Those that it overwrites.
    changes: Live,
}

impl Effect {
    /// Of an instruction.
    pub fn of(instruction: &Instruction, info: &InstructionInfo) -> Self {
        let (mut needs, mut changes) = (Live::NONE, Live::NONE);
        for used in info.used_registers() {
            let full = used.register().full_register();
            if !full.is_gpr64() {
                continue;
            }
            let bit = 1 << full.number();
            if overwrites(used) {
                changes.registers |= bit;
            } else if !matches!(used.access(), OpAccess::None | OpAccess::NoMemAccess) {
                needs.registers |= bit;
            }
        }
        needs.flags = instruction.rflags_read() & STATUS;
        changes.flags = match leaves_flags(instruction) {
            true => 0,
            false if sets_undefined(instruction) => instruction.rflags_modified(),
            // Processors may keep flags that are undefined.
            false => instruction.rflags_modified() & !instruction.rflags_undefined(),
        };
        Self { needs, changes }
    }
}

/// Whether all bits of a general register are overwritten.
fn overwrites(used: &UsedRegister) -> bool {
    let register = used.register();
    used.access() == OpAccess::Write && (register.is_gpr64() || register.is_gpr32())
}

/// Whether processors set the flags that the instruction leaves undefined, whatever they were before.
fn sets_undefined(instruction: &Instruction) -> bool {
    use Mnemonic::{And, Or, Sar, Shl, Shr, Test, Xor};
    matches!(
        instruction.mnemonic(),
        And | Or | Sar | Shl | Shr | Test | Xor
    )
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

/// What is needed before each instruction of a block, which have these effects. `after` returns what is needed at an
/// address outside it.
pub fn needed(block: &Block, effects: &[Effect], mut after: impl FnMut(u64) -> Live) -> Vec<Live> {
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
        live = live.before(&effects[at]);
        all[at] = live;
    }
    all
}

/// Most instructions examined after a block, for each of its branches.
const AHEAD: usize = 64;
/// Most of them that are examined only for registers.
const FOR_REGISTERS: usize = 12;
/// Most conditional branches one after the other that are followed.
const BRANCHES: usize = 2;

/// What is needed at an address. `code` decodes the instruction there, if it can.
pub fn needed_at(
    at: u64,
    factory: &mut InstructionInfoFactory,
    code: &mut impl FnMut(u64) -> Option<Instruction>,
) -> Live {
    let mut budget = AHEAD;
    needed_of(Live::ALL, at, BRANCHES, &mut budget, factory, code)
}

/// Which parts of `asked` are needed at an address.
fn needed_of(
    mut asked: Live,
    mut at: u64,
    branches: usize,
    budget: &mut usize,
    factory: &mut InstructionInfoFactory,
    code: &mut impl FnMut(u64) -> Option<Instruction>,
) -> Live {
    let mut needed = Live::NONE;
    while let Some(instruction) = code(at) {
        let options = InstructionInfoOptions::NO_MEMORY_USAGE;
        let effect = Effect::of(&instruction, factory.info_options(&instruction, options));
        needed = needed.or(effect.needs.and(asked));
        asked = asked.kept(&effect);
        if asked == Live::NONE {
            return needed;
        }
        *budget = budget.saturating_sub(1);
        at = instruction.next_ip();
        match instruction.flow_control() {
            _ if *budget == 0 => break,
            _ if enough(asked, *budget) => break,
            FlowControl::Next => {}
            FlowControl::UnconditionalBranch | FlowControl::Call
                if instruction.is_jmp_short_or_near() || instruction.is_call_near() =>
            {
                at = instruction.near_branch_target();
            }
            FlowControl::ConditionalBranch if branches > 0 => {
                let target = instruction.near_branch_target();
                let there = needed_of(asked, target, branches - 1, budget, factory, code);
                let here = needed_of(asked, at, branches - 1, budget, factory, code);
                return needed.or(there).or(here);
            }
            _ => break,
        }
    }
    needed.or(asked)
}

/// Whether no more need be examined with this budget: flags cost more than registers.
fn enough(asked: Live, budget: usize) -> bool {
    !asked.flags() && budget < AHEAD - FOR_REGISTERS
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    fn before(code: &[u8]) -> Live {
        let instruction = Decoder::with_ip(64, code, 0, DecoderOptions::NONE).decode();
        let mut factory = InstructionInfoFactory::new();
        Live::ALL.before(&Effect::of(&instruction, factory.info(&instruction)))
    }

    #[test]
    fn a_register_is_dead_before_it_is_overwritten_as_a_whole() {
        // mov eax, ecx; mov al, cl; xor eax, eax; mov rax, [rax]
        assert!(!before(&[0x89, 0xc8]).has(0) && before(&[0x89, 0xc8]).has(1));
        assert!(before(&[0x88, 0xc8]).has(0));
        assert!(!before(&[0x31, 0xc0]).has(0));
        assert!(before(&[0x48, 0x8b, 0x00]).has(0));
    }

    /// Whether flags are needed at the beginning of some code, which is at address 0.
    fn flags_at(code: &[u8]) -> bool {
        let mut decode = |at: u64| -> Option<Instruction> {
            let rest = code.get(at as usize..).filter(|rest| !rest.is_empty())?;
            Some(Decoder::with_ip(64, rest, at, DecoderOptions::NONE).decode())
        };
        needed_at(0, &mut InstructionInfoFactory::new(), &mut decode).flags()
    }

    #[test]
    fn what_is_needed_is_found_along_branches() {
        // mov ecx, eax; add eax, ecx
        assert!(!flags_at(&[0x89, 0xc1, 0x01, 0xc8]));
        // jmp over int3 to it
        assert!(!flags_at(&[0xeb, 0x01, 0xcc, 0x01, 0xc8]));
        // jrcxz: one side adds, the other returns
        assert!(flags_at(&[0xe3, 0x01, 0xc3, 0x01, 0xc8]));
        assert!(!flags_at(&[0xe3, 0x03, 0x01, 0xc8, 0xc3, 0x01, 0xc8]));
        // A return, and a jump to itself.
        assert!(flags_at(&[0xc3]) && flags_at(&[0xeb, 0xfe]));
    }

    #[test]
    fn flags_are_dead_before_an_instruction_that_changes_all_of_them() {
        // test, which clears the auxiliary carry although it is undefined; imul, which may keep flags
        assert!(!before(&[0x85, 0xc0]).flags() && before(&[0x0f, 0xaf, 0xc1]).flags());
        // add; inc, which keeps the carry; adc, which reads it; mov; shl by cl, which may be by 0
        assert!(!before(&[0x01, 0xc8]).flags());
        assert!(before(&[0xff, 0xc0]).flags());
        assert!(before(&[0x11, 0xc8]).flags());
        assert!(before(&[0x89, 0xc8]).flags());
        assert!(before(&[0xd3, 0xe0]).flags());
    }
}
