//! Which registers the address of an access comes from, and which register its value goes to or comes from: pure.
//!
//! For access traces, which mark loads whose address comes from another load. The state of a thread has, for each
//! general register, the number of the last fetch that its value comes from; loads and stores that are recorded change
//! it by the [`Flow`] of their access, and translated code for other instructions: [`Steps`].
//!
//! Not followed: flags, vector and mask registers, and what the engine finds out by itself ([`Plan::Complex`]). Values
//! that pass through them come from no fetch.

use iced_x86::{Instruction, InstructionInfo, Mnemonic, OpAccess, OpKind, Register};

use super::access::{Access, Plan};
use super::descriptor::Kind;
use crate::state::RSP;

/// The registers of an access, in one number: 0 if there is nothing to follow.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Flow(u32);

const REGISTER_BITS: u32 = 5;
const JOINS: u32 = 1 << (3 * REGISTER_BITS);
const FOLLOWED: u32 = JOINS << 1;

impl Flow {
    /// Of an access by `base` and `index`, whose value goes to or comes from `value`. `joins`: other values go there
    /// too.
    fn new([base, index, value]: [Option<usize>; 3], joins: bool) -> Self {
        let number = |register: Option<usize>, place: u32| {
            register.map_or(0, |register| register as u32 + 1) << (place * REGISTER_BITS)
        };
        let joins = if joins { JOINS } else { 0 };
        Self(number(base, 0) | number(index, 1) | number(value, 2) | joins | FOLLOWED)
    }

    /// As a number.
    pub fn encode(self) -> u32 {
        self.0
    }

    /// The inverse of [`Flow::encode`].
    pub fn decode(number: u32) -> Self {
        Self(number)
    }

    /// Whether there is anything to follow.
    #[inline(always)]
    pub fn is_followed(self) -> bool {
        self.0 & FOLLOWED != 0
    }

    #[inline(always)]
    fn register(self, place: u32) -> Option<usize> {
        let number = self.0 >> (place * REGISTER_BITS) & ((1 << REGISTER_BITS) - 1);
        (number as usize)
            .checked_sub(1)
            .filter(|&register| register < 16)
    }

    /// The fetch that the address comes from.
    #[inline(always)]
    pub fn address(self, fetches: &[u64; 16]) -> u64 {
        let of = |place| self.register(place).map_or(0, |register| fetches[register]);
        of(0).max(of(1))
    }

    /// The fetch that a stored value comes from.
    #[inline(always)]
    pub fn stored(self, fetches: &[u64; 16]) -> u64 {
        self.register(2).map_or(0, |register| fetches[register])
    }

    /// A value was loaded that comes from `fetch`.
    #[inline(always)]
    pub fn load(self, fetches: &mut [u64; 16], fetch: u64) {
        if let Some(register) = self.register(2) {
            let before = if self.0 & JOINS != 0 {
                fetches[register]
            } else {
                0
            };
            fetches[register] = before.max(fetch);
        }
    }
}

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
        if !nothing && access.size <= 8 {
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

    #[test]
    fn a_flow_survives_its_encoding_and_takes_the_last_fetch() {
        let flow = Flow::decode(Flow::new([Some(RAX), Some(15), Some(RCX)], true).encode());
        let mut fetches = [0; 16];
        (fetches[RAX], fetches[15], fetches[RCX]) = (7, 9, 12);
        assert_eq!((flow.address(&fetches), flow.stored(&fetches)), (9, 12));
        flow.load(&mut fetches, 10);
        assert_eq!(fetches[RCX], 12, "joined");
        flow.load(&mut fetches, 13);
        assert_eq!(fetches[RCX], 13);
    }
}
