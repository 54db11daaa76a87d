//! Translates the program's code for the cache: decoding, and copying with the necessary changes.

mod ahead;
mod borrowed;
mod branches;
mod copy;
mod counting;
mod counts;
mod decode;
mod groups;
mod landing;
mod liveness;
mod loops;
mod probe;
mod segment;
mod turns;

pub use ahead::Ahead;
pub use copy::Place;
pub use decode::Source;
pub use landing::{emit as landing, missed};

use iced_x86::InstructionInfoFactory;

use crate::fragment::{Branch, Translation};
use crate::record;

/// Translates the block at `pc`. `exit_code` numbers the exits; `landing`: the kind of landing at
/// its beginning.
pub fn translate(
    source: &mut Source,
    ahead: &mut Ahead,
    pc: u64,
    place: Place,
    landing: Option<Branch>,
    exit_code: &dyn Fn(usize) -> u64,
) -> Translation {
    let mut block = decode::decode(source, pc);
    let (mut live, mut targets) = (Vec::new(), Vec::new());
    if record::is_on() {
        let mut factory = InstructionInfoFactory::new();
        let mut other = InstructionInfoFactory::new();
        let mut pages = std::mem::take(&mut block.pages);
        live = liveness::needed(&block, &mut factory, |target| {
            let needed = ahead.needed_at(target, source, &mut other, &mut pages);
            targets.push((target, needed.flags()));
            needed
        });
        block.pages = pages;
    }
    copy::emit(&block, (live, &targets), place, landing, exit_code)
}
