//! Loops whose accesses move by constants: their turns are only counted while they run, and recorded together
//! afterwards. Which loops these are, and what of them the engine must know: pure; [`super::turns`] emits their code.
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

use super::decode::Block;
use super::liveness::Live;
use crate::record::access::{Access, Plan};
use crate::record::descriptor::Kind;
use crate::record::turns::Turns;
use crate::state::RSP;

/// Most turns that are recorded together: other threads see their effect that much later.
pub const TURNS: i64 = 512;
/// Most accesses of a turn.
const ACCESSES: usize = 64;

/// A loop at the beginning of a block.
pub struct Found {
    /// Number of the branch.
    pub branch: usize,
    /// What the engine needs to know of it.
    pub turns: Box<Turns>,
    /// Bits of the registers that the engine needs as they were before the first turn.
    pub registers: u16,
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
pub fn find(block: &Block, plans: &[(Plan, Owner)], live: &[Live]) -> Option<Found> {
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
    let mut factory = InstructionInfoFactory::new();
    let mut registers = Registers::first();
    let (mut pieces, mut code_places) = (Vec::new(), Vec::new());
    // Where each register is changed, and how often.
    let mut changes = [(0_u64, 0_u32); REGISTERS];
    for (decoded, (plan, owner)) in block.instructions[..=branch].iter().zip(plans) {
        let instruction = &decoded.instruction;
        let info = factory.info(instruction);
        let accesses = match plan {
            Plan::Nothing => &[][..],
            Plan::Before(accesses) => &accesses[..],
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
            code_places.resize(pieces.len(), instruction.ip());
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
    let mut found = of_pieces(&pieces, &registers.strides(), &changes, branch)?;
    found.turns.recorded.set_places(&code_places);
    Some(found)
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
    pub found: Found,
    /// Offset in the exits' code of the displacement of the jump to it.
    pub jump: usize,
    /// Address after the loop in the first copy.
    pub after: u64,
}
