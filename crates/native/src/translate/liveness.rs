//! Which registers and flags the instructions of a block need: pure.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfo, InstructionInfoFactory,
    InstructionInfoOptions, Mnemonic, OpAccess, OpKind, Register, RflagsBits,
};

use super::checks::LONGEST;
use super::decode::{Block, Bytes, End};
use crate::state::RCX;

/// Whether the first instructions of a block overwrite rcx before they read it. Branches, and whatever follows the
/// block, count as reading it. `uses`: how the instructions use registers, if that is known.
pub fn rcx_is_dead(block: &Block, uses: &[Uses]) -> bool {
    if !uses.is_empty() {
        let straight = block
            .instructions
            .iter()
            .take_while(|one| one.instruction.flow_control() == FlowControl::Next);
        let mut first = straight
            .zip(uses)
            .filter(|(_, one)| (one.needs | one.changes) >> RCX & 1 != 0);
        return first
            .next()
            .is_some_and(|(_, one)| one.needs >> RCX & 1 == 0);
    }
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
const STATUS: u16 = (RflagsBits::OF
    | RflagsBits::SF
    | RflagsBits::ZF
    | RflagsBits::AF
    | RflagsBits::CF
    | RflagsBits::PF) as u16;

/// What the program needs at an instruction: bits of general registers, and status flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Live {
    /// One bit for each general register.
    pub registers: u16,
    flags: u16,
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
    pub fn and(self, other: Self) -> Self {
        Self {
            registers: self.registers & other.registers,
            flags: self.flags & other.flags,
        }
    }

    /// What either needs.
    pub fn or(self, other: Self) -> Self {
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

/// How an instruction uses registers.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Uses {
    /// Bits of those whose value it needs.
    pub needs: u16,
    /// Bits of those that it may change.
    pub changes: u16,
    /// Bits of those of which it overwrites all bits.
    overwrites: u16,
}

impl Uses {
    /// Of an instruction.
    pub fn of(info: &InstructionInfo) -> Self {
        let mut uses = Self::default();
        for used in info.used_registers() {
            let register = used.register();
            let full = register.full_register();
            if !full.is_gpr64() {
                continue;
            }
            let bit = 1 << full.number();
            let whole = register.is_gpr64() || register.is_gpr32();
            match used.access() {
                OpAccess::None | OpAccess::NoMemAccess => {}
                OpAccess::Write if whole => {
                    uses.changes |= bit;
                    uses.overwrites |= bit;
                }
                OpAccess::Read | OpAccess::CondRead => uses.needs |= bit,
                _ => {
                    uses.needs |= bit;
                    uses.changes |= bit;
                }
            }
        }
        uses
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
    /// Of an instruction that uses registers so.
    pub fn of(instruction: &Instruction, uses: Uses) -> Self {
        let modified = instruction.rflags_modified();
        let changed = match () {
            () if modified == 0 || leaves_flags(instruction) => 0,
            () if sets_undefined(instruction) => modified,
            // Processors may keep flags that are undefined.
            () => modified & !instruction.rflags_undefined(),
        };
        Self {
            needs: Live {
                registers: uses.needs,
                flags: instruction.rflags_read() as u16 & STATUS,
            },
            changes: Live {
                registers: uses.overwrites,
                flags: changed as u16,
            },
        }
    }
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

/// Finds what is needed before each instruction of a block, which have these effects: `all`. `after` returns what is
/// needed at an address outside it.
pub fn needed(
    block: &Block,
    effects: &[Effect],
    all: &mut Vec<Live>,
    mut after: impl FnMut(u64) -> Live,
) {
    let mut live = match block.end {
        End::Jump(target) | End::Call(target) => after(target),
        _ => Live::ALL,
    };
    all.resize(block.instructions.len(), live);
    for (at, decoded) in block.instructions.iter().enumerate().rev() {
        let instruction = &decoded.instruction;
        if instruction.flow_control() == FlowControl::ConditionalBranch {
            live = live.or(after(instruction.near_branch_target()));
        }
        if decoded.next.is_some() && instruction.flow_control() != FlowControl::Call {
            // It may lead elsewhere.
            live = Live::ALL;
        }
        live = live.before(&effects[at]);
        all[at] = live;
    }
}

/// Whether a flag is needed at a branch's target, if `targets` are those of a block and whether a flag is needed there.
pub fn flags_at(targets: &[(u64, bool)], target: u64) -> bool {
    let known = targets.iter().find(|known| known.0 == target);
    known.is_none_or(|known| known.1)
}

/// Most instructions examined after a block, for each of its branches.
const AHEAD: usize = 64;
/// Most of them that are examined only for registers.
const FOR_REGISTERS: usize = 6;

/// How the examination of code goes on after some of it.
pub enum Then {
    /// It has shown everything.
    Decided,
    /// It ends here.
    Unknown,
    /// At an address.
    At(u64),
    /// At two addresses: the target of a branch, and the instruction after it.
    Either(u64, u64),
}

/// What code has shown of what is needed at its beginning.
pub struct Walk {
    /// What is needed there.
    pub needed: Live,
    /// What may be needed.
    pub asked: Live,
    examined: usize,
}

impl Walk {
    /// Nothing has been examined.
    pub fn new() -> Self {
        Self {
            needed: Live::NONE,
            asked: Live::ALL,
            examined: 0,
        }
    }

    /// Examines the instructions in `bytes`, which are at an address.
    pub fn on(&mut self, bytes: &[u8], at: u64, factory: &mut InstructionInfoFactory) -> Then {
        let mut decoder = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        loop {
            let position = decoder.position();
            let rest = bytes.len() - position;
            if position > 0 && rest < LONGEST && bytes.len() == size_of::<Bytes>() {
                return Then::At(decoder.ip());
            }
            if rest == 0 {
                return Then::Unknown;
            }
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() {
                return Then::Unknown;
            }
            if let Some(then) = self.step(&instruction, factory) {
                return then;
            }
        }
    }

    fn step(
        &mut self,
        instruction: &Instruction,
        factory: &mut InstructionInfoFactory,
    ) -> Option<Then> {
        let options = InstructionInfoOptions::NO_MEMORY_USAGE;
        let uses = Uses::of(factory.info_options(instruction, options));
        let effect = Effect::of(instruction, uses);
        self.needed = self.needed.or(effect.needs.and(self.asked));
        self.asked = self.asked.kept(&effect);
        self.examined += 1;
        let next = instruction.next_ip();
        let enough = !self.asked.flags() && self.examined > FOR_REGISTERS;
        match instruction.flow_control() {
            _ if self.asked == Live::NONE => Some(Then::Decided),
            _ if self.examined == AHEAD || enough => Some(Then::Unknown),
            FlowControl::Next => None,
            FlowControl::UnconditionalBranch | FlowControl::Call
                if instruction.is_jmp_short_or_near() || instruction.is_call_near() =>
            {
                Some(Then::At(instruction.near_branch_target()))
            }
            FlowControl::ConditionalBranch => {
                Some(Then::Either(instruction.near_branch_target(), next))
            }
            _ => Some(Then::Unknown),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn before(code: &[u8]) -> Live {
        let instruction = Decoder::with_ip(64, code, 0, DecoderOptions::NONE).decode();
        let mut factory = InstructionInfoFactory::new();
        let uses = Uses::of(factory.info(&instruction));
        Live::ALL.before(&Effect::of(&instruction, uses))
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
