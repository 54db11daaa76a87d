//! Several turns of a loop in one block: pure. Code that only counts accesses then counts them once for all.

use super::decode::{Block, Decoded};

/// Most instructions of the turns that are added.
const INSTRUCTIONS: usize = 48;
/// Most turns that are added.
const TURNS: usize = 7;

/// Adds turns to a block that begins with a loop: up to a conditional branch to the block's beginning, which then
/// leaves the block where the loop ends.
pub fn unroll(block: &mut Block) {
    let returns = |one: &Decoded| {
        let instruction = &one.instruction;
        instruction.is_jcc_short_or_near() && instruction.near_branch_target() == block.pc
    };
    let Some(branch) = block.instructions.iter().position(returns) else {
        return;
    };
    let mut turn = block.instructions[..=branch].to_vec();
    let last = &mut turn[branch].instruction;
    let after = last.next_ip();
    last.negate_condition_code();
    last.set_near_branch64(after);
    let turns = (INSTRUCTIONS / turn.len()).min(TURNS);
    let added = std::iter::repeat_n(turn, turns).flatten();
    block.instructions.splice(..0, added);
}

#[cfg(test)]
mod tests {
    use super::super::decode::End;
    use super::*;
    use iced_x86::{Code, ConditionCode};

    fn block(code: &[u8]) -> Block {
        Block::of(code, End::Jump(Block::AT + code.len() as u64))
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
    fn other_blocks_are_left_alone() {
        // add eax, ecx; jb forward; nop
        let mut block = block(&[0x01, 0xc8, 0x72, 0x00, 0x90]);
        unroll(&mut block);
        assert_eq!(block.instructions.len(), 3);
    }
}
