//! Translates the program's code for the cache: decoding, and copying with the necessary changes.

mod borrowed;
mod branches;
mod copy;
mod decode;
mod groups;
mod landing;
mod liveness;
mod loops;
mod probe;
mod segment;
mod turns;

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
    pc: u64,
    place: Place,
    landing: Option<Branch>,
    exit_code: &dyn Fn(usize) -> u64,
) -> Translation {
    let mut block = decode::decode(source, pc);
    let mut live = Vec::new();
    if record::is_on() {
        let mut factory = InstructionInfoFactory::new();
        let mut other = InstructionInfoFactory::new();
        let mut pages = std::mem::take(&mut block.pages);
        live = liveness::needed(&block, &mut factory, |target| {
            let mut code = |at| source.peek(at, &mut pages);
            liveness::needed_at(target, &mut other, &mut code)
        });
        block.pages = pages;
    }
    copy::emit(&block, live, place, landing, exit_code)
}
