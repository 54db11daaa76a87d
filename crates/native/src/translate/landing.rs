//! Landings: the code through which indirect branches reach their targets.
//!
//! An indirect branch stores the program's rcx in [`SLOT_RCX`] and jumps through the table of its kind, with the lowest
//! bits of the target as index, to a landing for some target with these bits. The landing compares the whole target: a
//! jump's is in [`SLOT_TARGET`], a return's is the word below the program's stack pointer. It does not change flags,
//! which the code at the target, or at the target of the next candidate, may read.

use crate::emit::Buffer;
use crate::fragment::{Branch, Landing};
use crate::layout::{MISSED_JUMP, MISSED_RETURN, VECTOR_JUMP, VECTOR_RETURN};
use crate::state::{RCX, RDX};

/// Slot for the program's rcx during an indirect branch.
pub const SLOT_RCX: usize = 0;
/// Slot for rdx during a comparison with a target above 2 GiB.
pub const SLOT_RDX: usize = 1;
/// Slot for the register that addresses a far operand.
pub const SLOT_FAR: usize = 2;
/// Slot for the target of an indirect jump or call.
pub const SLOT_TARGET: usize = 3;

/// Loads rcx with the branch's target.
fn load_target(code: &mut Buffer, branch: Branch) {
    match branch {
        Branch::Jump => code.restore(RCX, SLOT_TARGET),
        Branch::Return => code.put(&[0x48, 0x8b, 0x4c, 0x24, 0xf8]), // mov rcx, [rsp - 8]
    }
}

/// Emits a landing for `target`; the code after it is its body. `rcx_is_dead`: the body overwrites rcx before it reads
/// it.
pub fn emit(code: &mut Buffer, branch: Branch, target: u64, rcx_is_dead: bool) -> Landing {
    let entry = code.pc();
    load_target(code, branch);
    // The difference, without changing flags.
    if i32::try_from(target).is_ok() {
        code.address(RCX, Some(RCX), None, (target as i32).wrapping_neg());
    } else {
        code.save(RDX, SLOT_RDX);
        code.load(RDX, target.wrapping_neg());
        code.put(&[0x48, 0x8d, 0x0c, 0x11]); // lea rcx, [rcx + rdx]
        code.restore(RDX, SLOT_RDX);
    }
    let over = code.skip_if_rcx_is_zero();
    let miss = match branch {
        Branch::Jump => MISSED_JUMP,
        Branch::Return => MISSED_RETURN,
    };
    let next_candidate = code.jump(None, miss);
    code.land(over);
    if !rcx_is_dead {
        code.restore(RCX, SLOT_RCX);
    }
    Landing {
        branch,
        target,
        entry,
        next_candidate,
        body: code.pc(),
    }
}

/// The code for targets without a landing: where it belongs, and its bytes.
pub fn missed(branch: Branch) -> (u64, Vec<u8>) {
    let (at, vector) = match branch {
        Branch::Jump => (MISSED_JUMP, VECTOR_JUMP),
        Branch::Return => (MISSED_RETURN, VECTOR_RETURN),
    };
    let mut code = Buffer::new(at);
    load_target(&mut code, branch);
    code.jump_by(vector);
    (at, code.bytes().to_vec())
}
