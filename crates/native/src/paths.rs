//! Hot paths: finds code that is executed often, and notes the blocks that a thread executes from there on, one after
//! the other. They are translated as one block ([`crate::translate`]), whose accesses are recorded together.
//!
//! The engine records an access whenever a thread's quantum ends: where that happens in the same fragment again and
//! again, the fragment is hot. It is dropped, so that the next thread that reaches its beginning leaves the cache,
//! and goes on in code whose exits all lead to the engine ([`Version::Noting`](crate::fragment::Version::Noting)).
//! That happens twice: what both paths have in common is translated, because threads rarely leave it.
//! Between bursts hardly any quantum ends, so threads leave the cache [`LOOKS`] times to show where they are. Paths are
//! noted in bursts only.

use numaloc_follow::address_map::{self, AddressMap};

/// Most blocks of a path.
pub const BLOCKS: usize = 32;
/// A fragment in which a quantum has ended so often is hot.
const HOT: u8 = 2;
/// Accesses of a thread before it shows what is hot: a program's beginning is rarely repeated.
pub const EARLY: u64 = 1 << 25;
/// Times that a thread leaves code which only counts accesses, between bursts, to show what is hot.
pub const LOOKS: u32 = 1 << 12;
/// Accesses between them.
pub const BETWEEN_LOOKS: u64 = 1 << 16;
/// Most paths that have been noted once: some 560 KiB.
const UNDECIDED: usize = 1 << 10;
/// Instead of a number of quanta: a path from there has been noted.
const DONE: u8 = u8::MAX;

/// Where quanta have ended.
pub struct Heat {
    /// For addresses of blocks, the number of quanta that ended in them, or [`DONE`].
    quanta: AddressMap<u8>,
    /// For hot addresses, the path that has been noted first.
    first: AddressMap<Path>,
    /// Whether all code is hot.
    pub all: bool,
}

impl Heat {
    /// No quantum has ended.
    pub const fn new() -> Self {
        Self {
            quanta: address_map::map(),
            first: address_map::map(),
            all: false,
        }
    }

    /// Forgets everything.
    pub fn forget(&mut self) {
        self.quanta.clear();
        self.first.clear();
    }

    /// A quantum has ended in the block at `pc`; `rare`: most end elsewhere, between bursts. Returns whether a path is
    /// to be noted from there on.
    pub fn ended(&mut self, pc: u64, rare: bool) -> bool {
        let quanta = self.quanta.entry(pc).or_default();
        let more = if rare { HOT } else { 1 };
        if *quanta < HOT {
            *quanta = (*quanta + more).min(HOT);
        }
        *quanta == HOT
    }

    /// Whether a path is to be noted from `pc` on.
    pub fn is_hot(&self, pc: u64) -> bool {
        match self.quanta.get(&pc) {
            Some(&HOT) => true,
            Some(&DONE) => false,
            _ => self.all,
        }
    }

    /// Whether a path from `pc` on has been noted.
    pub fn is_noted(&self, pc: u64) -> bool {
        self.quanta.get(&pc) == Some(&DONE)
    }

    /// A path has been noted. Returns what it has in common with another from the same address, which has been noted
    /// before; `None` if there is none yet.
    pub fn noted(&mut self, path: &Path) -> Option<Path> {
        let pc = *path.blocks().first()?;
        let decided = match self.first.remove(&pc) {
            Some(first) => path.common(&first),
            None if !self.all && self.first.len() < UNDECIDED => {
                self.first.insert(pc, *path);
                return None;
            }
            None => *path,
        };
        self.quanta.insert(pc, DONE);
        Some(decided)
    }
}

/// The blocks that a thread executes from a hot one on.
#[derive(Clone, Copy)]
pub struct Path {
    blocks: [u64; BLOCKS],
    count: usize,
}

impl Path {
    /// None: nothing is noted.
    pub const EMPTY: Self = Self {
        blocks: [0; BLOCKS],
        count: 0,
    };

    /// Their addresses.
    pub fn blocks(&self) -> &[u64] {
        &self.blocks[..self.count]
    }

    /// The blocks that two paths begin with.
    fn common(&self, other: &Self) -> Self {
        let pairs = self.blocks().iter().zip(other.blocks());
        Self {
            count: pairs.take_while(|(one, other)| one == other).count(),
            ..*self
        }
    }

    /// Whether there are any.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds a block. False if the path ends before it: it has been there, or is long enough.
    pub fn add(&mut self, pc: u64) -> bool {
        let adds = self.count < BLOCKS && !self.blocks().contains(&pc);
        if adds {
            self.blocks[self.count] = pc;
            self.count += 1;
        }
        adds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(blocks: &[u64]) -> Path {
        let mut path = Path::EMPTY;
        assert!(blocks.iter().all(|&pc| path.add(pc)));
        path
    }

    #[test]
    fn a_block_is_hot_until_two_paths_from_it_have_been_noted() {
        let mut heat = Heat::new();
        assert!(!heat.ended(0x1000, false) && !heat.is_hot(0x1000));
        assert!(heat.ended(0x1000, false) && heat.is_hot(0x1000));
        assert!(!heat.is_hot(0x2000));
        assert!(heat.ended(0x2000, true));
        assert!(heat.noted(&path(&[0x1000, 0x1010, 0x1020])).is_none());
        assert!(heat.is_hot(0x1000) && !heat.is_noted(0x1000));
        let common = heat.noted(&path(&[0x1000, 0x1010, 0x1030])).unwrap();
        assert_eq!(common.blocks(), [0x1000, 0x1010]);
        assert!(!heat.ended(0x1000, false) && !heat.is_hot(0x1000));
        assert!(heat.is_noted(0x1000) && !heat.is_noted(0x2000));
    }

    #[test]
    fn too_many_undecided_paths_are_taken_as_they_are() {
        let mut heat = Heat::new();
        let mut noted = |pc: u64| heat.noted(&path(&[pc, 1])).is_some();
        let taken = (0x1000..).take(UNDECIDED + 3).filter(|&pc| noted(pc));
        assert_eq!(taken.count(), 3);
        // One is decided: there is room for another.
        assert!(noted(0x1000) && !noted(0x9000));
    }

    #[test]
    fn a_path_ends_where_it_has_been() {
        let mut path = Path::EMPTY;
        assert!(path.is_empty() && path.add(1) && path.add(2));
        assert!(!path.add(1));
        assert_eq!(path.blocks(), [1, 2]);
        let rest = (3..100).filter(|&pc| path.add(pc)).count();
        assert_eq!(rest, BLOCKS - 2);
    }
}
