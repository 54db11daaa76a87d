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
        if !join(&mut block, next) {
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
        End::CallIndirect | End::JumpIndirect | End::Return => {
            *then = Some(next);
            i32::try_from(next).is_ok()
        }
        _ => false,
    }
}
