//! Translates the program's code for the cache: decoding, and copying with the necessary changes.

mod ahead;
mod analysis;
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
mod unroll;

pub use ahead::Ahead;
pub use copy::Place;
pub use decode::Source;
pub use landing::{emit as landing, missed};

use crate::fragment::{Branch, Translation, Version};
use crate::record;
use analysis::Analysis;

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
    let branches = match place.version {
        Version::Counting => decode::BRANCHES_COUNTED,
        Version::Usual if record::is_on() => decode::BRANCHES_RECORDED,
        Version::Usual => decode::BRANCHES,
    };
    let mut block = decode::decode(source, pc, branches);
    if place.version == Version::Counting && record::entry(pc).is_none() {
        unroll::unroll(&mut block);
    }
    let analysis = Analysis::of(&mut block, place.version, source, ahead);
    copy::emit(&block, &analysis, place, landing, exit_code)
}
