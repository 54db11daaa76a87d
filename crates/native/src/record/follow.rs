//! How instructions pass values on, from which [`Flow`]s and the code between recorded accesses are made: pure.
//!
//! Not followed: flags, vector and mask registers, and what the engine finds out by itself ([`Plan::Complex`]). Values
//! that pass through them come from no fetch.

use iced_x86::{Instruction, InstructionInfo, Mnemonic, OpAccess, OpKind, Register};

use super::access::{Access, Operand, Plan};
use super::descriptor::Kind;
use super::flow::Flow;
use crate::state::RSP;

/// How an instruction passes values on from register to register, loads and stores apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A value that comes from no register.
    Clear(usize),
    /// From the second to the first.
    Copy(usize, usize),
    /// From the second and the third to the first.
    Join(usize, usize, usize),
}

impl Step {
    /// The register that it changes.
    pub fn to(self) -> usize {
        match self {
            Self::Clear(to) | Self::Copy(to, _) | Self::Join(to, ..) => to,
        }
    }
}

/// The [`Step`]s of an instruction: those of the registers that usual instructions change.
pub type Steps = [Option<Step>; 2];

/// A general register whose values are followed: the stack's place comes from no load.
fn general(register: Register) -> Option<usize> {
    let full = register.full_register();
    (full.is_gpr64() && full.number() != RSP).then(|| full.number())
}

/// Bits of the general registers that an instruction reads as values, and of those that it changes.
fn values(instruction: &Instruction, info: &InstructionInfo) -> (u16, u16) {
    use OpAccess::{CondRead, CondWrite, Read, ReadCondWrite, ReadWrite, Write};
    let (mut reads, mut changes, mut explicit) = (0_u16, 0_u16, 0_u16);
    let mut add = |register: Register, access: OpAccess| {
        let Some(number) = general(register) else {
            return;
        };
        let part = register.size() < 4;
        if matches!(
            access,
            Read | CondRead | ReadWrite | ReadCondWrite | CondWrite
        ) || part
        {
            reads |= 1 << number;
        }
        if matches!(access, Write | CondWrite | ReadWrite | ReadCondWrite) {
            changes |= 1 << number;
        }
    };
    for operand in 0..instruction.op_count() {
        if instruction.op_kind(operand) == OpKind::Register {
            let register = instruction.op_register(operand);
            explicit |= general(register).map_or(0, |number| 1 << number);
            add(register, info.op_access(operand));
        }
    }
    // Registers of an address are no values, except where the address is the result.
    let address = match instruction.mnemonic() {
        Mnemonic::Lea => 0,
        _ => [instruction.memory_base(), instruction.memory_index()]
            .into_iter()
            .filter_map(general)
            .fold(0, |bits, number| bits | 1 << number),
    };
    for used in info.used_registers() {
        let is_other = |number: usize| (explicit | address) >> number & 1 == 0;
        if general(used.register()).is_some_and(is_other) {
            add(used.register(), used.access());
        }
    }
    if is_zero(instruction) {
        reads = 0;
    }
    (reads, changes)
}

/// Whether the result does not depend on the registers that the instruction names.
fn is_zero(instruction: &Instruction) -> bool {
    let same = instruction.op_count() == 2
        && instruction.op_kind(0) == OpKind::Register
        && instruction.op_kind(1) == OpKind::Register
        && instruction.op_register(0) == instruction.op_register(1);
    same && matches!(
        instruction.mnemonic(),
        Mnemonic::Xor | Mnemonic::Sub | Mnemonic::Sbb
    )
}

fn bits(bits: u16) -> impl Iterator<Item = usize> {
    (0..16).filter(move |number| bits >> number & 1 != 0)
}

/// The flow of an access whose value is not followed.
pub fn of_address(operand: &Operand) -> Flow {
    Flow::new([general(operand.base), general(operand.index), None], false)
}

/// Sets the flows of a plan's accesses, and returns the steps of its instruction.
pub fn follow(plan: &mut Plan, instruction: &Instruction, info: &InstructionInfo) -> Steps {
    let (reads, changes) = values(instruction, info);
    let mut loaded = None;
    let mut mark = |access: &mut Access| {
        let operand = access.operand;
        let [base, index] = [operand.base, operand.index].map(general);
        let value = match access.kind {
            Kind::Read | Kind::Atomic => {
                loaded = loaded.or(bits(changes).next());
                loaded
            }
            Kind::Write => source(instruction),
            _ => None,
        };
        let joins = loaded.is_some_and(|register| reads >> register & 1 != 0);
        let nothing = access.kind != Kind::Write && [base, index, value] == [None; 3];
        if !nothing {
            access.flow = Flow::new([base, index, value], joins);
        }
    };
    match plan {
        Plan::Before(accesses) => accesses.iter_mut().for_each(mark),
        Plan::After { access, .. } => mark(access),
        _ => {}
    }
    let mut steps = [None; 2];
    let changed = bits(changes).filter(|&register| Some(register) != loaded);
    for (step, to) in steps.iter_mut().zip(changed) {
        let mut from = bits(reads);
        *step = match (from.next(), from.next()) {
            (None, _) => Some(Step::Clear(to)),
            (Some(one), None) if one == to => None,
            (Some(one), None) => Some(Step::Copy(to, one)),
            (Some(one), Some(other)) => Some(Step::Join(to, one, other)),
        };
    }
    steps
}

/// The register that an instruction stores as a whole.
fn source(instruction: &Instruction) -> Option<usize> {
    let last = instruction.op_count().checked_sub(1)?;
    let register =
        (instruction.op_kind(last) == OpKind::Register).then(|| instruction.op_register(last))?;
    general(register).filter(|_| register.is_gpr64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::access;
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};
    use numaloc_follow::owners::Owner;

    const RAX: usize = 0;
    const RCX: usize = 1;
    const RDX: usize = 2;
    const RBX: usize = 3;

    /// The steps of an instruction, and the flow of its only access.
    fn followed(code: &[u8]) -> (Steps, Flow) {
        let instruction = Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE).decode();
        let mut factory = InstructionInfoFactory::new();
        let info = factory.info(&instruction);
        let mut plan = access::plan(&instruction, info, Owner::Program, false);
        let steps = follow(&mut plan, &instruction, info);
        let flow = match &plan {
            Plan::Before(accesses) => accesses[0].flow,
            Plan::After { access, .. } => access.flow,
            _ => Flow::default(),
        };
        (steps, flow)
    }

    #[test]
    fn loads_pass_a_value_from_memory_to_a_register() {
        let at = |registers, joins| Flow::new(registers, joins);
        // mov rax, [rax]; mov eax, [rbx + rcx * 4]; add rax, [rbx]; movzx eax, byte [rsp]; cmp rax, [rbx]; pop rax
        for (code, flow) in [
            (
                &[0x48, 0x8b, 0x00][..],
                at([Some(RAX), None, Some(RAX)], false),
            ),
            (
                &[0x8b, 0x04, 0x8b],
                at([Some(RBX), Some(RCX), Some(RAX)], false),
            ),
            (&[0x48, 0x03, 0x03], at([Some(RBX), None, Some(RAX)], true)),
            (
                &[0x0f, 0xb6, 0x04, 0x24],
                at([None, None, Some(RAX)], false),
            ),
            (&[0x48, 0x3b, 0x03], at([Some(RBX), None, None], false)),
            (&[0x58], at([None, None, Some(RAX)], false)),
        ] {
            assert_eq!(followed(code), ([None; 2], flow), "{code:x?}");
        }
        // vmovdqu ymm0, [rbx]
        let vector = followed(&[0xc5, 0xfe, 0x6f, 0x03]).1;
        assert_eq!(vector, at([Some(RBX), None, None], false));
        // movsd xmm0, [rsp]: a vector register, and the stack's place.
        assert!(!followed(&[0xf2, 0x0f, 0x10, 0x04, 0x24]).1.is_followed());
    }

    #[test]
    fn stores_pass_a_value_to_memory() {
        let at = |registers| Flow::new(registers, false);
        // mov [rsp + 8], rax; mov [rbx], eax; push rax; mov qword [rbx], 0
        for (code, flow) in [
            (
                &[0x48, 0x89, 0x44, 0x24, 0x08][..],
                at([None, None, Some(RAX)]),
            ),
            (&[0x89, 0x03], at([Some(RBX), None, None])),
            (&[0x50], at([None, None, Some(RAX)])),
            (&[0x48, 0xc7, 0x03, 0, 0, 0, 0], at([Some(RBX), None, None])),
        ] {
            assert_eq!(followed(code), ([None; 2], flow), "{code:x?}");
        }
    }

    #[test]
    fn other_instructions_pass_values_from_register_to_register() {
        let one = |step| [Some(step), None];
        // mov rax, rbx; xor eax, eax; mov eax, 5; add rax, rbx; add rax, 8; lea rax, [rbx + rcx * 8]; lea rax, [rip];
        // imul rax, rbx, 3; cmove rax, rbx; shl rax, cl
        for (code, steps) in [
            (&[0x48, 0x89, 0xd8][..], one(Step::Copy(RAX, RBX))),
            (&[0x31, 0xc0], one(Step::Clear(RAX))),
            (&[0xb8, 5, 0, 0, 0], one(Step::Clear(RAX))),
            (&[0x48, 0x01, 0xd8], one(Step::Join(RAX, RAX, RBX))),
            (&[0x48, 0x83, 0xc0, 0x08], [None; 2]),
            (&[0x48, 0x8d, 0x04, 0xcb], one(Step::Join(RAX, RCX, RBX))),
            (&[0x48, 0x8d, 0x05, 0, 0, 0, 0], one(Step::Clear(RAX))),
            (&[0x48, 0x6b, 0xc3, 0x03], one(Step::Copy(RAX, RBX))),
            (&[0x48, 0x0f, 0x44, 0xc3], one(Step::Join(RAX, RAX, RBX))),
            (&[0x48, 0xd3, 0xe0], one(Step::Join(RAX, RAX, RCX))),
        ] {
            assert_eq!(followed(code), (steps, Flow::default()), "{code:x?}");
        }
        // mul rbx: from rax and rbx to rax and rdx.
        let both = [Step::Join(RAX, RAX, RBX), Step::Join(RDX, RAX, RBX)];
        assert_eq!(followed(&[0x48, 0xf7, 0xe3]).0, both.map(Some));
    }
}
