//! Computes addresses from the registers at a block's beginning.
//!
//! Follows instructions that move, add or subtract constants; any other change makes a register unknown. An address
//! made of known registers can be recorded when the block begins ([`numaloc_trace::block`]).

use iced_x86::{
    CodeSize, Instruction, InstructionInfo, Mnemonic, OpAccess, OpKind, Register, UsedMemory,
};
use numaloc_trace::block::{Form, REGISTERS, Step, Strides};

const RSP: usize = 4;
const RBP: usize = 5;

/// The value of a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Value {
    /// The sum of up to two values, and a constant. Values have the numbers of the registers in which they were at the
    /// block's beginning, or names: see [`Registers::naming`].
    Known([Option<u8>; 2], u64),
    Unknown,
}

/// The values of the registers before an instruction.
#[derive(Clone)]
pub struct Registers {
    values: [Value; REGISTERS],
    /// Bits of those that were changed.
    changed: u16,
    /// The next name for a value.
    next: Option<u8>,
}

/// The index of a 64-bit register, in the order of the processor and QEMU.
fn number(register: Register) -> Option<usize> {
    register.is_gpr64().then(|| register.number())
}

impl Registers {
    /// The registers at the block's beginning.
    #[must_use]
    pub fn first() -> Self {
        Self {
            values: std::array::from_fn(as_at_first),
            changed: 0,
            next: None,
        }
    }

    /// The registers at a block's beginning. Values that do not follow from there get numbers of their own while there
    /// are any, beginning with [`REGISTERS`]: forms name them as they name registers.
    #[must_use]
    pub fn naming() -> Self {
        Self {
            next: Some(REGISTERS as u8),
            ..Self::first()
        }
    }

    /// A register, not among the bits `except`, that contains a value plus a constant, and the constant.
    #[must_use]
    pub fn holder(&self, value: u8, except: u16) -> Option<(u8, u64)> {
        let mut allowed = registers(!except);
        allowed.find_map(|at| match self.values[at] {
            Value::Known([Some(one), None], constant) if one == value => Some((at as u8, constant)),
            _ => None,
        })
    }

    /// The next number that a value will get as its name, if any is left.
    #[must_use]
    pub fn next_name(&self) -> Option<u8> {
        self.next
    }

    /// A value that does not follow from others.
    fn new_value(&mut self) -> Value {
        let Some(name) = self.next else {
            return Value::Unknown;
        };
        self.next = name.checked_add(1);
        Value::Known([Some(name), None], 0)
    }

    /// As [`Self::first`], where another block begins.
    pub fn start_again(&mut self) {
        for at in registers(std::mem::take(&mut self.changed)) {
            self.values[at] = as_at_first(at);
        }
    }

    fn set(&mut self, at: usize, value: Value) {
        self.values[at] = value;
        self.changed |= 1 << at;
    }

    /// The address of `memory` as a form and a displacement; `None` if it does not follow from the block's beginning.
    pub fn address(&self, memory: &UsedMemory) -> Option<(Form, u64)> {
        let plain = !matches!(memory.segment(), Register::FS | Register::GS)
            && memory.address_size() == CodeSize::Code64;
        let mut form = Form::default();
        let mut displacement = memory.displacement();
        if !plain {
            return None;
        }
        let mut second = None;
        if memory.base() != Register::None {
            let Value::Known(registers, offset) = self.values[number(memory.base())?] else {
                return None;
            };
            [form.base, second] = registers;
            form.index = second.map(|register| (register, 0));
            displacement = displacement.wrapping_add(offset);
        }
        if memory.index() != Register::None {
            let Value::Known([register, None], offset) = self.values[number(memory.index())?]
            else {
                return None;
            };
            let shift = memory.scale().ilog2() as u8;
            if register.is_some() {
                if second.is_some() {
                    return None;
                }
                form.index = register.map(|register| (register, shift));
            }
            displacement = displacement.wrapping_add(offset << shift);
        }
        Some((form, displacement))
    }

    /// Applies one instruction.
    pub fn step(&mut self, instruction: &Instruction, info: &InstructionInfo) {
        let mut changes = 0;
        for used in info.used_registers() {
            let writes = !matches!(
                used.access(),
                OpAccess::None | OpAccess::NoMemAccess | OpAccess::Read | OpAccess::CondRead
            );
            if writes && let Some(at) = number(used.register().full_register()) {
                changes |= 1 << at;
            }
        }
        self.step_changing(instruction, changes);
    }

    /// [`Self::step`], if it is known which registers the instruction may change: their bits.
    pub fn step_changing(&mut self, instruction: &Instruction, changes: u16) {
        let result = self.result(instruction);
        let stack = match instruction.mnemonic() {
            Mnemonic::Push | Mnemonic::Pop | Mnemonic::Call | Mnemonic::Ret => {
                Some(self.plus(RSP, instruction.stack_pointer_increment() as i64 as u64))
            }
            Mnemonic::Leave => Some(self.plus(RBP, 8)),
            _ => None,
        };
        for at in registers(changes) {
            let value = self.new_value();
            self.set(at, value);
        }
        if let Some((at, value)) = result {
            self.set(at, value);
        }
        // `pop %rsp` loads the stack pointer.
        if let Some(value) = stack
            && (instruction.op_count() == 0 || instruction.op0_register() != Register::RSP)
        {
            self.set(RSP, value);
        }
    }

    fn plus(&self, at: usize, amount: u64) -> Value {
        match self.values[at] {
            Value::Known(registers, offset) => Value::Known(registers, offset.wrapping_add(amount)),
            Value::Unknown => Value::Unknown,
        }
    }

    fn sum(&self, one: usize, other: usize) -> Value {
        match (self.values[one], self.values[other]) {
            (Value::Known(registers, offset), Value::Known([None, None], constant))
            | (Value::Known([None, None], constant), Value::Known(registers, offset)) => {
                Value::Known(registers, offset.wrapping_add(constant))
            }
            (Value::Known([one, None], offset), Value::Known([other, None], constant)) => {
                Value::Known([one, other], offset.wrapping_add(constant))
            }
            _ => Value::Unknown,
        }
    }

    /// The register that an instruction sets to a known value, and the value.
    fn result(&self, instruction: &Instruction) -> Option<(usize, Value)> {
        let to = instruction.op0_register();
        let cleared = matches!(instruction.mnemonic(), Mnemonic::Xor | Mnemonic::Sub)
            && instruction.op1_kind() == OpKind::Register
            && instruction.op1_register() == to;
        if cleared && (to.is_gpr32() || to.is_gpr64()) {
            return Some((number(to.full_register())?, Value::Known([None; 2], 0)));
        }
        let constant = constant(instruction);
        if instruction.mnemonic() == Mnemonic::Mov && to.is_gpr32() {
            let value = Value::Known([None; 2], u64::from(constant? as u32));
            return Some((number(to.full_register())?, value));
        }
        let at = number(to)?;
        if instruction.op0_kind() != OpKind::Register {
            return None;
        }
        let value = match instruction.mnemonic() {
            Mnemonic::Mov => match constant {
                Some(constant) => Value::Known([None; 2], constant),
                None if instruction.op1_kind() == OpKind::Register => {
                    self.values[number(instruction.op1_register())?]
                }
                None => return None,
            },
            Mnemonic::Add => match constant {
                Some(constant) => self.plus(at, constant),
                None if instruction.op1_kind() == OpKind::Register => {
                    self.sum(at, number(instruction.op1_register())?)
                }
                None => return None,
            },
            Mnemonic::Sub => self.plus(at, constant?.wrapping_neg()),
            Mnemonic::Inc => self.plus(at, 1),
            Mnemonic::Dec => self.plus(at, u64::MAX),
            Mnemonic::Lea => {
                let displacement = instruction.memory_displacement64();
                match (instruction.memory_base(), instruction.memory_index()) {
                    (Register::RIP, Register::None) | (Register::None, Register::None) => {
                        Value::Known([None; 2], displacement)
                    }
                    (base, Register::None) => self.plus(number(base)?, displacement),
                    (base, index)
                        if instruction.memory_index_scale() == 1 && base != Register::None =>
                    {
                        match self.sum(number(base)?, number(index)?) {
                            Value::Known(registers, offset) => {
                                Value::Known(registers, offset.wrapping_add(displacement))
                            }
                            Value::Unknown => Value::Unknown,
                        }
                    }
                    _ => return None,
                }
            }
            _ => return None,
        };
        Some((at, value))
    }

    /// What the block adds to each register.
    pub fn strides(&self) -> Strides {
        let kept = |at: u8| self.values[usize::from(at)] == Value::Known([Some(at), None], 0);
        std::array::from_fn(|at| match self.values[at] {
            Value::Known([Some(register), added], constant)
                if usize::from(register) == at && added.is_none_or(kept) =>
            {
                Some(Step {
                    constant,
                    register: added,
                })
            }
            _ => None,
        })
    }
}

/// The value of a register at the block's beginning.
fn as_at_first(at: usize) -> Value {
    Value::Known([Some(at as u8), None], 0)
}

/// The numbers of the registers in a set of bits, ascending.
pub fn registers(mut bits: u16) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let first = bits.trailing_zeros() as usize;
        bits &= bits.wrapping_sub(1);
        (first < REGISTERS).then_some(first)
    })
}

/// The second operand of an instruction, if it is a constant.
fn constant(instruction: &Instruction) -> Option<u64> {
    match instruction.op1_kind() {
        OpKind::Immediate8to64
        | OpKind::Immediate32to64
        | OpKind::Immediate64
        | OpKind::Immediate32
        | OpKind::Immediate8to32 => Some(instruction.immediate(1)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    use super::*;

    #[test]
    fn a_block_that_starts_again_knows_all_registers() {
        let mut factory = InstructionInfoFactory::new();
        // add rdi, 8; mov rcx, [rdi]; push rax; mov rax, [rdi + rcx]
        let code: [&[u8]; 4] = [
            &[0x48, 0x83, 0xc7, 0x08],
            &[0x48, 0x8b, 0x0f],
            &[0x50],
            &[0x48, 0x8b, 0x04, 0x0f],
        ];
        let mut registers = Registers::first();
        let mut places = Vec::new();
        for bytes in code {
            let instruction = Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE).decode();
            let info = factory.info(&instruction);
            let memory = info.used_memory().first();
            places.push(memory.map(|memory| registers.address(memory)));
            registers.step(&instruction, info);
        }
        let form = |base| Form {
            base: Some(base),
            index: None,
        };
        // A push stores below the stack pointer.
        let below = Some((form(4), 8_u64.wrapping_neg()));
        assert_eq!(
            places,
            [None, Some(Some((form(7), 8))), Some(below), Some(None)]
        );
        registers.start_again();
        assert!(registers.values == Registers::first().values);
    }
}
