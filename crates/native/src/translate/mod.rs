//! Translates the program's code for the cache: decoding, and copying with the necessary changes.

mod ahead;
mod along;
mod analysis;
mod borrowed;
mod branches;
mod by_gs;
mod by_registers;
mod checks;
mod compare;
mod copy;
mod counting;
mod counts;
mod decode;
mod flow;
mod groups;
mod landing;
mod lines;
mod liveness;
mod loops;
mod page;
mod path;
mod probe;
mod segment;
mod turns;
mod unroll;

pub use copy::Place;
pub use decode::Source;
pub use landing::{emit as landing, missed};

use crate::fragment::{Branch, Fragment, Translation, Version};
use crate::record;
use ahead::Ahead;
use analysis::Analysis;
use copy::Memory;
use decode::Decoded;

/// What a translation leaves to the next: knowledge of the program's code, and memory.
pub struct Workshop {
    ahead: Ahead,
    instructions: Vec<Decoded>,
    analysis: Analysis,
    memory: Memory,
}

impl Workshop {
    /// Nothing.
    pub const fn new() -> Self {
        Self {
            ahead: Ahead::new(),
            instructions: Vec::new(),
            analysis: Analysis::new(),
            memory: Memory::new(),
        }
    }

    /// Forgets what is known of the program's code.
    pub fn forget(&mut self) {
        self.ahead.forget();
    }

    /// Takes back the memory of a translation that was copied to the cache; returns its fragment.
    pub fn reuse(&mut self, made: Translation) -> Fragment {
        self.memory.reuse(made)
    }
}

/// Translates the block at `pc`, or the blocks of a path from there on. `exit_code` numbers the exits; `landing`: the
/// kind of landing at its beginning.
pub fn translate(
    source: &mut Source,
    workshop: &mut Workshop,
    path: &[u64],
    place: Place,
    landing: Option<Branch>,
    exit_code: &dyn Fn(usize) -> u64,
) -> Translation {
    let pc = path[0];
    let branches = match place.version {
        Version::Counting => decode::BRANCHES_COUNTED,
        Version::Usual if record::is_on() => decode::BRANCHES_RECORDED,
        Version::Usual => decode::BRANCHES,
        // A segment ends with the first.
        Version::Apart | Version::Noting => 1,
    };
    let Workshop {
        ahead,
        instructions,
        analysis,
        memory,
    } = workshop;
    instructions.clear();
    let mut pages = std::mem::take(&mut memory.pages);
    pages.clear();
    let memory_of = std::mem::take(instructions);
    let mut block = match path.len() {
        1 => decode::decode(source, pc, branches, memory_of, pages),
        _ => path::decode(source, path, memory_of, pages),
    };
    let checked = block.checks.is_some();
    if place.version == Version::Counting && !checked && record::entry(pc).is_none() {
        unroll::unroll(&mut block);
    }
    analysis.examine(&mut block, place.version, source, ahead);
    let made = copy::emit(&mut block, analysis, place, landing, memory, exit_code);
    *instructions = block.instructions;
    made
}
