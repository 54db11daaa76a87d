//! Emits the code of loops whose turns are recorded together ([`super::loops`]).

use numaloc_follow::owners::Owner;
use numaloc_trace::block::REGISTERS;

use super::borrowed::Lent;
use super::copy::Copier;
use super::decode::Block;
use super::loops::{Begun, Found, TURNS};
use crate::emit::{EQUAL, Field, NEGATIVE, Number};
use crate::fragment::{Exit, Version};
use crate::layout::{VECTOR_EXIT, VECTOR_PLAIN};
use crate::record::descriptor::{Descriptor, Kind};
use crate::record::turns::Turns;
use crate::state::{self, RAX};

/// Turns that are recorded like other code before: many loops are short.
const FIRST: u64 = 4;

impl Copier<'_> {
    /// Emits the branch of a loop in its first copy, which goes to the other one after some turns: at once where each
    /// access is recorded by itself, because lines that change their state in one turn usually do in the next.
    pub(super) fn begin_loop(&mut self, found: Found, block: &Block) {
        let last = &block.instructions[found.branch].instruction;
        self.settle();
        // The other copy changes registers without storing them.
        self.lent = Lent::default();
        self.point(last.ip(), None);
        let turn = self.stubs.pc();
        self.code.jump_if(last.condition_code() as u8 - 1, turn);
        if self.version != Version::Apart {
            self.stubs.subtract_from_field(state::FIRST_TURNS, 1);
            let more = self.stubs.skip_if(NEGATIVE);
            self.exit_from_stubs(block.pc, Version::Usual);
            self.stubs.land(more);
        }
        for register in (0..REGISTERS).filter(|register| found.registers >> register & 1 != 0) {
            let field = state::TURN_REGISTERS + 8 * register as i32;
            self.stubs.with_field(Field::Store, register, field);
        }
        let Turns { leader, stride, .. } = *found.turns;
        let distance = (stride * TURNS) as i32;
        self.stubs.with_field(Field::Store, RAX, state::SCRATCH);
        self.stubs.copy(RAX, leader);
        self.stubs.with_number(Number::Add, RAX, distance);
        self.stubs.with_field(Field::Store, RAX, state::LAST_TURN);
        self.stubs.with_field(Field::Load, RAX, state::SCRATCH);
        let at = &raw const *found.turns as u64;
        self.stubs.set_field(state::TURNS, at);
        self.stubs.jump_to(0);
        let jump = self.stubs.offset() - 4;
        let after = self.code.pc();
        self.code.set_field(state::FIRST_TURNS, FIRST);
        self.loops.push(Begun { found, jump, after });
    }

    /// Emits the copies of loops that record nothing.
    pub(super) fn other_loops(&mut self, block: &Block) {
        for Begun { found, jump, after } in std::mem::take(&mut self.loops) {
            let last = &block.instructions[found.branch].instruction;
            self.lent = Lent::default();
            self.code.align(16);
            let head = self.code.pc();
            self.stubs.lead(jump, head);
            self.recorded = false;
            self.point(block.pc, None);
            let leader = found.turns.leader;
            self.code
                .with_field(Field::Compare, leader, state::LAST_TURN);
            let full = self.stubs.pc();
            self.code.jump_if(EQUAL, full);
            self.recorded = true;
            for (at, decoded) in block.instructions[..found.branch].iter().enumerate() {
                // Registers are not stored here, and addresses come from no load.
                self.instruction_itself(at, decoded);
            }
            self.point(last.ip(), None);
            self.code.jump_if(last.condition_code() as u8 - 1, head);
            self.record_turns(false);
            self.code.jump_to(after);
            self.record_turns(true);
            self.exit_from_stubs(block.pc, Version::Usual);
            self.fragment.kept().turns.push(found.turns);
        }
    }

    /// Leaves the cache to record the turns made.
    fn record_turns(&mut self, stub: bool) {
        let code = if stub {
            &mut self.stubs
        } else {
            &mut self.code
        };
        let descriptor = Descriptor {
            size: 0,
            kind: Kind::Turns,
            owner: Owner::Program,
        };
        code.set_field(state::ACCESS, descriptor.encode());
        // 13 bytes for this field, 7 for the jump.
        let resume = code.pc() + 20;
        code.set_field(state::RESUME, resume);
        code.jump_by(VECTOR_PLAIN);
    }

    /// A direct branch out of the fragment to code of a version, in the exits' code.
    pub(super) fn exit_from_stubs(&mut self, target: u64, version: Version) {
        let number = self.exits.len();
        let patch = self.stubs.jump(None, 0);
        let stub = self.stubs.pc();
        let displacement = (patch - self.stubs.address_of(0)) as usize;
        self.stubs.lead(displacement, stub);
        self.stubs.set_field(state::EXIT, (self.exit_code)(number));
        self.stubs.jump_by(VECTOR_EXIT);
        self.exits.push(Exit {
            target,
            patch: patch as u32,
            stub: stub as u32,
            version,
        });
    }
}
