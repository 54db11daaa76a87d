//! Copies a block: instructions unchanged, except for rip-relative operands, branches, calls and returns.

use iced_x86::{
    Code, Encoder, FlowControl, Instruction, InstructionInfoFactory, MemoryOperand, OpKind,
    Register,
};

use super::decode::{Block, Decoded, End};
use crate::cache::{Exit, Fragment, Point, Translation};
use crate::emit::Buffer;
use crate::layout::{MISS, TABLE, VECTOR_EXIT};
use crate::state::{self, RCX, RDX, exit};

/// Slot for rcx during the look-up of an indirect target.
const SLOT_RCX: usize = 0;
/// Slot for rdx during the look-up of an indirect target.
const SLOT_RDX: usize = 1;
/// Slot for the register that addresses a far operand.
const SLOT_FAR: usize = 2;

/// Emits the code of a block.
pub fn emit(
    block: &Block,
    at: u64,
    stubs_at: u64,
    exit_code: &dyn Fn(usize) -> u64,
) -> Translation {
    let mut copier = Copier {
        code: Buffer::new(at),
        stubs: Buffer::new(stubs_at),
        exits: Vec::new(),
        fragment: Fragment::new(block.pc, at),
        exit_code,
    };
    copier.prefix(block.pc);
    for decoded in &block.instructions {
        copier.instruction(decoded);
    }
    copier.end(block);
    copier.fragment.pages.clone_from(&block.pages);
    Translation {
        fragment: copier.fragment,
        exits: copier.exits,
        code: copier.code.bytes().to_vec(),
        stubs: copier.stubs.bytes().to_vec(),
    }
}

struct Copier<'a> {
    code: Buffer,
    stubs: Buffer,
    exits: Vec<Exit>,
    fragment: Fragment,
    exit_code: &'a dyn Fn(usize) -> u64,
}

impl Copier<'_> {
    /// Adds a point: the program is at `pc` here.
    fn point(&mut self, pc: u64, borrowed: Option<(usize, usize)>) {
        let Ok(offset) = u16::try_from(self.code.offset()) else {
            return;
        };
        let Ok(delta) = i32::try_from(pc.wrapping_sub(self.fragment.pc) as i64) else {
            return;
        };
        let point = Point {
            offset,
            delta,
            borrowed: borrowed.map(|(register, slot)| (register as u8, slot as u8)),
        };
        match self.fragment.points.last_mut() {
            // The end of a block after an omitted instruction.
            Some(last) if last.offset == offset => *last = point,
            _ => self.fragment.points.push(point),
        }
    }

    /// The entry for indirect branches, with the target in rcx and the program's rcx and rdx in slots. Does not change
    /// flags: it subtracts our address; if the difference is not zero, it is undone and the next candidate is tried.
    fn prefix(&mut self, pc: u64) {
        let near = i32::try_from(pc).is_ok();
        let subtract = |code: &mut Buffer, value: u64| {
            if near {
                code.put(&[0x48, 0x8d, 0x89]); // lea rcx, [rcx + value]
                code.put32(value as i32);
            } else {
                code.load(RDX, value);
                code.put(&[0x48, 0x8d, 0x0c, 0x11]); // lea rcx, [rcx + rdx]
            }
        };
        subtract(&mut self.code, pc.wrapping_neg());
        self.code.put(&[0xe3, 0]); // jrcxz
        let hit = self.code.offset();
        subtract(&mut self.code, pc);
        self.fragment.next_candidate = self.code.jump(None, MISS);
        let distance = (self.code.offset() - hit) as u8;
        self.code.patch(hit - 1, &[distance]);
        self.code.restore(RDX, SLOT_RDX);
        self.code.restore(RCX, SLOT_RCX);
        self.code.align(16, 0);
        self.fragment.body = self.code.pc();
    }

    fn instruction(&mut self, decoded: &Decoded) {
        let instruction = &decoded.instruction;
        match instruction.flow_control() {
            FlowControl::Next
            | FlowControl::Exception
            | FlowControl::Interrupt
            | FlowControl::XbeginXabortXend
                if instruction.code() != Code::Int3 =>
            {
                self.plain(decoded);
            }
            FlowControl::ConditionalBranch => self.conditional(decoded),
            // The last instruction of a block: the block's end handles it.
            _ => {}
        }
    }

    fn plain(&mut self, decoded: &Decoded) {
        let instruction = &decoded.instruction;
        let bytes = &decoded.bytes[..instruction.len()];
        if !instruction.is_ip_rel_memory_operand() {
            self.point(instruction.ip(), None);
            self.code.put(bytes);
            return;
        }
        let target = instruction.ip_rel_memory_address();
        let distance = target.wrapping_sub(self.code.pc() + bytes.len() as u64) as i64;
        if let Ok(distance) = i32::try_from(distance) {
            self.point(instruction.ip(), None);
            let start = self.code.offset();
            self.code.put(bytes);
            self.code
                .patch(start + decoded.displacement, &distance.to_le_bytes());
        } else {
            self.far(instruction, target);
        }
    }

    /// A rip-relative operand out of reach: addressed by a register that the instruction does not use.
    fn far(&mut self, instruction: &Instruction, target: u64) {
        const CHOICE: [(Register, usize); 7] = [
            (Register::RAX, 0),
            (Register::RCX, 1),
            (Register::RDX, 2),
            (Register::RBX, 3),
            (Register::RBP, 5),
            (Register::RSI, 6),
            (Register::RDI, 7),
        ];
        let mut factory = InstructionInfoFactory::new();
        let used: Vec<Register> = factory
            .info(instruction)
            .used_registers()
            .iter()
            .map(|used| used.register().full_register())
            .collect();
        let (base, number) = CHOICE
            .into_iter()
            .find(|(register, _)| !used.contains(register))
            .unwrap_or(CHOICE[0]);
        self.point(instruction.ip(), None);
        self.code.save(number, SLOT_FAR);
        self.code.load(number, target);
        let mut changed = *instruction;
        changed.set_memory_base(base);
        changed.set_memory_displacement64(0);
        changed.set_memory_displ_size(0);
        self.point(instruction.ip(), Some((number, SLOT_FAR)));
        self.encode(&changed);
        self.code.restore(number, SLOT_FAR);
    }

    fn encode(&mut self, instruction: &Instruction) {
        let mut encoder = Encoder::new(64);
        // Every instruction here was decoded, or is a plain load.
        if encoder.encode(instruction, self.code.pc()).is_ok() {
            self.code.put(&encoder.take_buffer());
        } else {
            self.code.put(&[0x0f, 0x0b]);
        }
    }

    /// A direct branch out of the fragment.
    fn exit(&mut self, condition: Option<u8>, target: u64) {
        let number = self.exits.len();
        let stub = self.stubs.pc();
        self.stubs.set_field(state::EXIT, (self.exit_code)(number));
        self.stubs.jump_by(VECTOR_EXIT);
        let patch = self.code.jump(condition, stub);
        self.exits.push(Exit {
            target,
            patch,
            stub,
        });
    }

    fn conditional(&mut self, decoded: &Decoded) {
        let instruction = &decoded.instruction;
        self.point(instruction.ip(), None);
        let target = instruction.near_branch_target();
        if instruction.is_jcc_short_or_near() {
            let condition = instruction.condition_code() as u8 - 1;
            self.exit(Some(condition), target);
            return;
        }
        // jrcxz and loop have only short displacements.
        let len = instruction.len();
        self.code.put(&decoded.bytes[..len - 1]);
        self.code.put(&[0]);
        let from = self.code.offset();
        self.point(instruction.next_ip(), None);
        self.exit(None, instruction.next_ip());
        let distance = (self.code.offset() - from) as u8;
        self.code.patch(from - 1, &[distance]);
        self.point(target, None);
        self.exit(None, target);
    }

    fn push(&mut self, value: u64) {
        self.code.put(&[0x68]);
        self.code.put32(value as i32);
        if i32::try_from(value).is_err() {
            self.code.put(&[0xc7, 0x44, 0x24, 0x04]); // mov dword [rsp + 4], high half
            self.code.put32((value >> 32) as i32);
        }
    }

    /// Looks up the target in rcx.
    fn look_up(&mut self) {
        self.code.save(RDX, SLOT_RDX);
        self.code.put(&[0x0f, 0xb7, 0xd1]); // movzx edx, cx
        self.code.put(&[0xff, 0x24, 0xd5]); // jmp [rdx * 8 + TABLE]
        self.code.put32(TABLE as i32);
    }

    /// Loads the target of an indirect branch into rcx.
    fn target(&mut self, instruction: &Instruction) {
        self.point(instruction.ip(), None);
        self.code.save(RCX, SLOT_RCX);
        self.point(instruction.ip(), None);
        if instruction.op0_kind() == OpKind::Register {
            self.code
                .copy(RCX, instruction.op0_register().full_register().number());
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

    fn leave(&mut self, pc: u64, why: u64) {
        self.code.set_field(state::PC, pc);
        self.code.set_field(state::EXIT, why);
        self.code.jump_by(VECTOR_EXIT);
    }

    fn end(&mut self, block: &Block) {
        let last = block.instructions.last().map(|last| &last.instruction);
        match (block.end, last) {
            (End::Jump(target), _) => {
                self.point(target, None);
                self.exit(None, target);
            }
            (End::Call(target), Some(last)) => {
                self.point(last.ip(), None);
                self.push(last.next_ip());
                self.point(target, None);
                self.exit(None, target);
            }
            (End::CallIndirect, Some(last)) => {
                self.target(last);
                self.point(last.ip(), Some((RCX, SLOT_RCX)));
                self.push(last.next_ip());
                self.look_up();
            }
            (End::JumpIndirect, Some(last)) => {
                self.target(last);
                self.look_up();
            }
            (End::Return, Some(last)) => {
                self.point(last.ip(), None);
                self.code.save(RCX, SLOT_RCX);
                self.point(last.ip(), None);
                self.code.put(&[0x59]); // pop rcx
                if last.op_count() > 0 {
                    self.code.put(&[0x48, 0x8d, 0xa4, 0x24]); // lea rsp, [rsp + n]
                    self.code.put32(i32::from(last.immediate16()));
                }
                self.look_up();
            }
            (End::SystemCall, Some(last)) => {
                self.point(last.ip(), None);
                self.leave(last.next_ip(), exit::SYSCALL);
            }
            (End::Breakpoint, Some(last)) => {
                self.point(last.ip(), None);
                self.leave(last.next_ip(), exit::BREAKPOINT);
            }
            (End::NoCode(at), _) => {
                self.point(at, None);
                self.leave(at, exit::NO_CODE);
            }
            (End::Unsupported(at), _) => {
                self.point(at, None);
                self.leave(at, exit::UNSUPPORTED);
            }
            // Such an end has a last instruction.
            (_, None) => self.leave(block.pc, exit::UNSUPPORTED),
        }
    }
}
