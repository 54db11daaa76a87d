//! Several turns of a loop in one block: pure. Code that only counts accesses then counts them once for all.

use super::decode::{Block, Decoded, End};

/// Most instructions of the turns that are added.
const INSTRUCTIONS: usize = 48;
/// Most turns that are added.
const TURNS: usize = 7;

/// Adds turns to a block that begins with a loop: up to a conditional branch to the block's beginning, which then
/// leaves the block where the loop ends, or up to a block's end that leads to its beginning.
pub fn unroll(block: &mut Block) {
    let turn = if let Some(branch) = branch_back(block) {
        let mut turn = block.instructions[..=branch].to_vec();
        let last = &mut turn[branch].instruction;
        let after = last.next_ip();
        last.negate_condition_code();
        last.set_near_branch64(after);
        turn
    } else if block.end == End::Jump(block.pc) {
        block.instructions.clone()
    } else {
        return;
    };
    let turns = (INSTRUCTIONS / turn.len().max(1)).min(TURNS);
    let added = std::iter::repeat_n(turn, turns).flatten();
    block.instructions.splice(..0, added);
}

/// The conditional branch to a block's beginning, after which the block goes on. Of a path that is known of the last.
fn branch_back(block: &Block) -> Option<usize> {
    let returns = |one: &Decoded| {
        let instruction = &one.instruction;
        instruction.is_jcc_short_or_near() && instruction.near_branch_target() == block.pc
    };
    let mut branches = block.instructions.iter();
    if block.is_path {
        let last = branches.len().checked_sub(1)?;
        return branches.next_back().is_some_and(returns).then_some(last);
    }
    branches.position(returns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Code, ConditionCode};

    fn block(code: &[u8]) -> Block {
        Block::of(code, End::Jump(Block::AT + code.len() as u64))
    }

    fn targets(block: &Block) -> Vec<u64> {
        let all = block.instructions.iter().map(|one| &one.instruction);
        let branches = all.filter(|one| one.is_jcc_short_or_near());
        branches.map(|one| one.near_branch_target()).collect()
    }

    #[test]
    fn a_loop_makes_several_turns_and_leaves_where_it_ends() {
        // add eax, ecx; jb back; nop
        let mut block = block(&[0x01, 0xc8, 0x72, 0xfc, 0x90]);
        unroll(&mut block);
        let all = block.instructions.iter().map(|one| one.instruction);
        let (branches, others): (Vec<_>, Vec<_>) = all.partition(|one| one.is_jcc_short_or_near());
        assert_eq!((branches.len(), others.len()), (TURNS + 1, TURNS + 2));
        assert_eq!(others.last().map(|one| one.code()), Some(Code::Nopd));
        let (back, out) = branches.split_last().unwrap();
        assert_eq!(back.near_branch_target(), 0x1000);
        assert_eq!(back.condition_code(), ConditionCode::b);
        for one in out {
            assert_eq!((one.ip(), one.near_branch_target()), (0x1002, 0x1004));
            assert_eq!(one.condition_code(), ConditionCode::ae);
        }
    }

    #[test]
    fn a_block_whose_end_leads_back_makes_several_turns() {
        // add eax, ecx; jb forward
        let mut block = Block::of(&[0x01, 0xc8, 0x72, 0x10], End::Jump(Block::AT));
        unroll(&mut block);
        assert_eq!(targets(&block), [0x1014; TURNS + 1]);
        assert_eq!(block.end, End::Jump(Block::AT));
    }

    #[test]
    fn a_path_goes_on_after_its_last_branch_only() {
        // jb back; add eax, ecx; jb back
        for is_path in [false, true] {
            let mut block = block(&[0x72, 0xfe, 0x01, 0xc8, 0x72, 0xfa]);
            block.is_path = is_path;
            unroll(&mut block);
            let targets = targets(&block);
            let first = if is_path { 0x1000 } else { 0x1002 };
            assert_eq!(targets[0], first, "{targets:x?}");
            let last = targets.iter().filter(|&&target| target == 0x1006).count();
            assert_eq!(last, if is_path { TURNS } else { 0 }, "{targets:x?}");
        }
    }

    #[test]
    fn other_blocks_are_left_alone() {
        // add eax, ecx; jb forward; nop
        let mut block = block(&[0x01, 0xc8, 0x72, 0x00, 0x90]);
        unroll(&mut block);
        assert_eq!(block.instructions.len(), 3);
    }
}
