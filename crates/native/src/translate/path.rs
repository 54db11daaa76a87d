//! A path of several blocks, decoded as one: conditional branches then leave the block where the path does not go on,
//! and calls, returns and indirect branches within it compare where they lead with where the path goes on.

use iced_x86::FlowControl;

use super::decode::{self, Block, Decoded, End, Source};

/// Decodes the blocks of a path as one. `instructions` and `pages` are empty memory for what it contains. It ends early
/// where the blocks are not executed one after the other.
pub fn decode(
    source: &mut Source,
    path: &[u64],
    instructions: Vec<Decoded>,
    pages: Vec<u64>,
) -> Block {
    let (first, rest) = path.split_first().expect("a path has a block");
    let mut block = decode::decode(source, *first, 1, instructions, pages);
    for &next in rest {
        if source.is_checked(next) || !join(&mut block, next) {
            break;
        }
        let before = block.instructions.len();
        block = decode::decode(source, next, 1, block.instructions, block.pages);
        let unknown = matches!(block.end, End::NoCode(_) | End::Unsupported(_));
        if unknown || block.instructions.len() == before {
            // Perhaps the code has changed since the path was noted.
            block.instructions.truncate(before);
            block.end = End::Jump(next);
            break;
        }
    }
    block.pc = *first;
    block.is_path = true;
    block
}

/// Lets a block go on at an address. False if it does not.
fn join(block: &mut Block, next: u64) -> bool {
    let Some(Decoded {
        instruction: last,
        next: then,
        ..
    }) = block.instructions.last_mut()
    else {
        return false;
    };
    match block.end {
        End::Jump(after) if last.flow_control() == FlowControl::ConditionalBranch => {
            let target = last.near_branch_target();
            if !last.is_jcc_short_or_near() {
                return false;
            }
            if next == target && next != after {
                last.negate_condition_code();
                last.set_near_branch64(after);
            }
            next == target || next == after
        }
        End::Jump(after) => next == after,
        End::Call(target) if target == next => {
            *then = Some(next);
            true
        }
        End::Return if last.op_count() > 0 => false,
        // Targets are compared with constants of 31 bits.
        End::CallIndirect | End::JumpIndirect | End::Return if i32::try_from(next).is_ok() => {
            *then = Some(next);
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use iced_x86::ConditionCode;

    use super::*;

    #[test]
    fn a_branch_leaves_the_path_where_it_does_not_go_on() {
        // jb 0x1010
        let code = [0x72, 0x0e];
        for (next, condition, target) in [
            (0x1002, ConditionCode::b, 0x1010),
            (0x1010, ConditionCode::ae, 0x1002),
        ] {
            let mut block = Block::of(&code, End::Jump(0x1002));
            assert!(join(&mut block, next));
            let branch = &block.instructions[0].instruction;
            assert_eq!(branch.condition_code(), condition);
            assert_eq!(branch.near_branch_target(), target);
        }
        assert!(!join(&mut Block::of(&code, End::Jump(0x1002)), 0x1020));
        // jrcxz 0x1010
        assert!(!join(
            &mut Block::of(&[0xe3, 0x0e], End::Jump(0x1002)),
            0x1010
        ));
    }

    #[test]
    fn calls_and_returns_know_where_the_path_goes_on() {
        // call 0x1010; ret; ret 8; jmp rax
        let call = [0xe8, 0x0b, 0, 0, 0];
        for (code, end, next, joins) in [
            (&call[..], End::Call(0x1010), 0x1010, true),
            (&call, End::Call(0x1010), 0x1020, false),
            (&[0xc3], End::Return, 0x1020, true),
            (&[0xc2, 8, 0], End::Return, 0x1020, false),
            (&[0xff, 0xe0], End::JumpIndirect, 0x1020, true),
            (&[0xff, 0xe0], End::JumpIndirect, 1 << 40, false),
            (&[0x0f, 0x05], End::SystemCall, 0x1002, false),
        ] {
            let mut block = Block::of(code, end);
            assert_eq!(join(&mut block, next), joins, "{end:?} {next:x}");
            let then = block.instructions[0].next;
            assert_eq!(then, joins.then_some(next));
        }
    }
}
