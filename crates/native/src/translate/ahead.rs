//! What the program needs at the targets of branches, remembered: many blocks branch to the same ones.

use iced_x86::InstructionInfoFactory;

use super::decode::Source;
use super::liveness::{self, Live};
use crate::address_map::{self, AddressMap};

/// What is needed at an address, and the pages of the code that was examined.
struct Known {
    live: Live,
    pages: Vec<u64>,
}

/// What is known of branches' targets. It must be forgotten when code changes that it was found in.
pub struct Ahead(AddressMap<Known>);

impl Ahead {
    /// Nothing.
    pub const fn new() -> Self {
        Self(address_map::map())
    }

    /// Forgets everything.
    pub fn forget(&mut self) {
        self.0.clear();
    }

    /// What is needed at `target`. Adds the pages examined to `pages`.
    pub fn needed_at(
        &mut self,
        target: u64,
        source: &Source,
        factory: &mut InstructionInfoFactory,
        pages: &mut Vec<u64>,
    ) -> Live {
        let known = self.0.entry(target).or_insert_with(|| {
            let mut pages = Vec::new();
            let mut code = |at| source.peek(at, &mut pages);
            let live = liveness::needed_at(target, factory, &mut code);
            Known { live, pages }
        });
        for page in &known.pages {
            if !pages.contains(page) {
                pages.push(*page);
            }
        }
        known.live
    }
}
