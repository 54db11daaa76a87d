//! Loops whose accesses move by constants: their turns are only counted while they run, and recorded together
//! afterwards.
//!
//! Such a loop is the beginning of a block, up to a conditional branch back to it. Its first turns are recorded like
//! other code. Then the thread continues in another copy of it, which records nothing: a register that each turn
//! changes by a constant, the *leader*, shows how many turns were made. The engine records them when the loop ends,
//! after [`TURNS`] turns, and before anything else happens to the thread ([`crate::record::turns`]).

use iced_x86::{FlowControl, InstructionInfoFactory, OpAccess};
use numaloc_follow::affine::Registers;
use numaloc_follow::owners::Owner;
use numaloc_follow::usage;
use numaloc_trace::block::{self, Piece, REGISTERS, Step, Strides};
use numaloc_trace::thread::Loop;

use super::copy::Copier;
use super::decode::Block;
use super::liveness::Live;
use crate::emit::{EQUAL, Field, NEGATIVE, Number};
use crate::fragment::Exit;
use crate::layout::{VECTOR_EXIT, VECTOR_PLAIN};
use crate::record::access::{Access, Descriptor, Kind, Plan};
use crate::record::turns::Turns;
use crate::state::{self, RAX, RSP};

/// Most turns that are recorded together: other threads see their effect that much later.
const TURNS: i64 = 512;
/// Turns that are recorded like other code before: most loops are short.
const FIRST: u64 = 4;
/// Most accesses of a turn.
const ACCESSES: usize = 64;

/// A loop at the beginning of a block.
pub struct Found {
    /// Number of the branch.
    pub branch: usize,
    /// What the engine needs to know of it.
    turns: Box<Turns>,
    /// Bits of the registers that the engine needs as they were before the first turn.
    registers: u16,
}

/// The pieces of a block for an access: one for each word, as they count.
fn pieces_of(
    access: &Access,
    form: block::Form,
    displacement: u64,
) -> Option<impl Iterator<Item = Piece>> {
    const WORD: u16 = numaloc_trace::thread::WORD as u16;
    let kind = match access.kind {
        Kind::Read => block::Kind::Read,
        Kind::Write => block::Kind::Write,
        Kind::Update => block::Kind::Update,
        _ => return None,
    };
    let size = access.size;
    let word = move |at: u16| Piece {
        form,
        displacement: displacement.wrapping_add(at.into()),
        size: (size - at).min(WORD) as u8,
        kind,
    };
    Some((0..size).step_by(WORD.into()).map(word))
}

/// The loop at the beginning of a block, if its turns can be recorded together.
pub fn find(
    block: &Block,
    plans: &[(Plan, Owner)],
    live: &[Live],
    factory: &mut InstructionInfoFactory,
) -> Option<Found> {
    let straight = block
        .instructions
        .iter()
        .position(|one| one.instruction.flow_control() != FlowControl::Next);
    let branch = straight?;
    let last = &block.instructions[branch].instruction;
    let returns = last.is_jcc_short_or_near() && last.near_branch_target() == block.pc;
    if !returns || live.first()?.flags() {
        return None;
    }
    let mut registers = Registers::first();
    let mut pieces = Vec::new();
    // Where each register is changed, and how often.
    let mut changes = [(0_u64, 0_u32); REGISTERS];
    for (decoded, (plan, owner)) in block.instructions[..=branch].iter().zip(plans) {
        let instruction = &decoded.instruction;
        let info = factory.info(instruction);
        let accesses = match plan {
            Plan::Nothing => &[][..],
            Plan::Before(accesses) => accesses,
            Plan::After { .. } | Plan::Masked { .. } | Plan::Complex => return None,
        };
        if *owner != Owner::Program || usage::synchronises(instruction) {
            return None;
        }
        let places = usage::accesses(info).map(|memory| registers.address(memory));
        for (access, place) in accesses.iter().zip(places) {
            let (form, displacement) = place?;
            if !access.is_plain(*owner) {
                return None;
            }
            pieces.extend(pieces_of(access, form, displacement)?);
        }
        for used in info.used_registers() {
            let register = used.register().full_register();
            let writes = !matches!(
                used.access(),
                OpAccess::None | OpAccess::NoMemAccess | OpAccess::Read | OpAccess::CondRead
            );
            if writes && register.is_gpr64() {
                let (at, times) = &mut changes[register.number()];
                (*at, *times) = (instruction.ip(), *times + 1);
            }
        }
        registers.step(instruction, info);
    }
    if pieces.is_empty() || pieces.len() > ACCESSES {
        return None;
    }
    of_pieces(&pieces, &registers.strides(), &changes, branch)
}

/// A loop with these accesses, if all their addresses move by constants.
fn of_pieces(
    pieces: &[Piece],
    strides: &Strides,
    changes: &[(u64, u32); REGISTERS],
    branch: usize,
) -> Option<Found> {
    let mut used = 0_u16;
    for piece in pieces {
        let of_form = [piece.form.base, piece.form.index.map(|index| index.0)];
        for register in of_form.into_iter().flatten() {
            let step = strides[usize::from(register)]?;
            used |= 1 << register | step.register.map_or(0, |other| 1 << other);
        }
    }
    let leads = |&at: &usize| match strides[at] {
        Some(Step {
            constant,
            register: None,
        }) => {
            let limit = (constant as i64).checked_mul(TURNS);
            let reaches = limit.is_some_and(|limit| i32::try_from(limit).is_ok());
            at != RSP && constant != 0 && reaches && changes[at].1 == 1
        }
        _ => false,
    };
    let leader = (0..REGISTERS).find(leads)?;
    let all = strides.map(|step| step.or(Some(Step::default())));
    let turns = Turns {
        recorded: Loop::new(pieces, all),
        leader,
        stride: strides[leader]?.constant as i64,
        steps_at: changes[leader].0,
    };
    Some(Found {
        branch,
        turns: Box::new(turns),
        registers: used | 1 << leader,
    })
}

/// A loop whose other copy is still to be emitted.
pub struct Begun {
    found: Found,
    /// Offset in the exits' code of the displacement of the jump to it.
    jump: usize,
    /// Address after the loop in the first copy.
    after: u64,
}

impl Copier<'_> {
    /// Emits the branch of a loop in its first copy, which goes to the other one after some turns.
    pub(super) fn begin_loop(&mut self, found: Found, block: &Block) {
        let last = &block.instructions[found.branch].instruction;
        self.point(last.ip(), None);
        let turn = self.stubs.pc();
        self.code.jump_if(last.condition_code() as u8 - 1, turn);
        self.stubs.subtract_from_field(state::FIRST_TURNS, 1);
        let more = self.stubs.skip_if(NEGATIVE);
        self.exit_from_stubs(block.pc);
        self.stubs.land(more);
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
            for decoded in &block.instructions[..found.branch] {
                self.instruction(decoded);
            }
            self.point(last.ip(), None);
            self.code.jump_if(last.condition_code() as u8 - 1, head);
            self.record_turns(false);
            self.code.jump_to(after);
            self.record_turns(true);
            self.exit_from_stubs(block.pc);
            self.fragment.turns.push(found.turns);
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

    /// A direct branch out of the fragment, in the exits' code.
    fn exit_from_stubs(&mut self, target: u64) {
        let number = self.exits.len();
        let patch = self.stubs.jump(None, 0);
        let stub = self.stubs.pc();
        let displacement = (patch - self.stubs.address_of(0)) as usize;
        self.stubs.lead(displacement, stub);
        self.stubs.set_field(state::EXIT, (self.exit_code)(number));
        self.stubs.jump_by(VECTOR_EXIT);
        self.exits.push(Exit {
            target,
            patch,
            stub,
        });
    }
}
