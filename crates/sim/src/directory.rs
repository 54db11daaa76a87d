//! The directory: for each line, the core that has it written, the cores that may have it, and the last-level caches
//! that may have it.
//!
//! An entry takes 8 bytes, because a simulation has one for each line of the trace's pages: a bit for each last-level
//! cache, and an owner, a single sharer, or the place of a set of sharers in a table of those lines that several cores
//! have. A line with an owner has no other sharer.

use crate::prefetch::prefetch;

/// A directory entry, unpacked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Cores that may have the line, a bit for each (for several on machines with more than 64).
    pub(crate) sharers: u64,
    /// Last-level caches that may have the line.
    pub(crate) groups: u32,
    /// The core that has the line written, plus one; 0 for none.
    pub(crate) owner: u32,
}

/// Kinds of packed entries: who has the line.
const NOBODY: u64 = 0;
/// One core, by the number of its bit.
const ONE: u64 = 1;
/// The core that has written it.
const OWNER: u64 = 2;
/// The sharers at a place of the table.
const SEVERAL: u64 = 3;

/// Last-level caches in the low 32 bits, the kind in the next 2, a core or a place in the high 30.
type Packed = u64;

const KIND: u32 = 32;
const VALUE: u32 = 34;
const GROUPS: u64 = u32::MAX as u64;

/// All entries.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    entries: Vec<Packed>,
    /// Sharers of lines that several cores may have.
    several: Vec<u64>,
    /// Unused places of `several`.
    unused: Vec<u32>,
    sharer_shift: u32,
}

impl Directory {
    /// Entries for lines below `lines`, which no core has.
    pub(crate) fn new(lines: usize, cores: usize) -> Self {
        Self {
            entries: vec![NOBODY; lines],
            several: Vec::new(),
            unused: Vec::new(),
            sharer_shift: cores.div_ceil(64).next_power_of_two().trailing_zeros(),
        }
    }

    /// Log2 of the number of cores that share a bit.
    pub(crate) fn sharer_shift(&self) -> u32 {
        self.sharer_shift
    }

    /// The bit of a core among a line's sharers.
    #[inline(always)]
    pub(crate) fn bit(&self, core: u32) -> u64 {
        1 << (core >> self.sharer_shift)
    }

    #[inline(always)]
    pub(crate) fn prefetch(&self, line: u32) {
        prefetch(&self.entries, line as usize);
    }

    #[inline(always)]
    pub(crate) fn entry(&self, line: u32) -> Entry {
        let packed = self.entries[line as usize];
        let value = (packed >> VALUE) as u32;
        let (sharers, owner) = match packed >> KIND & 3 {
            NOBODY => (0, 0),
            ONE => (1 << value, 0),
            OWNER => (self.bit(value), value + 1),
            _ => (self.several[value as usize], 0),
        };
        Entry {
            sharers,
            groups: packed as u32,
            owner,
        }
    }

    #[inline(always)]
    fn set(&mut self, line: u32, kind: u64, value: u32) {
        let entry = &mut self.entries[line as usize];
        *entry = *entry & GROUPS | kind << KIND | u64::from(value) << VALUE;
    }

    /// Records that a last-level cache has the line.
    #[inline(always)]
    pub(crate) fn add_group(&mut self, line: u32, group: u32) {
        self.entries[line as usize] |= 1 << group;
    }

    /// Records that a last-level cache no longer has the line.
    #[inline(always)]
    pub(crate) fn remove_group(&mut self, line: u32, group: u32) {
        self.entries[line as usize] &= !(1 << group);
    }

    /// Records that the owner's copy equals that of its last-level cache or of memory; the owner remains a sharer.
    #[inline(always)]
    pub(crate) fn disown(&mut self, line: u32) {
        let packed = self.entries[line as usize];
        if packed >> KIND & 3 == OWNER {
            let bit = (packed >> VALUE) as u32 >> self.sharer_shift;
            self.set(line, ONE, bit);
        }
    }

    /// Records that a core, which is not another one than the owner, has the line.
    #[inline]
    pub(crate) fn add_sharer(&mut self, line: u32, core: u32) {
        let packed = self.entries[line as usize];
        let (value, bit) = ((packed >> VALUE) as u32, core >> self.sharer_shift);
        match packed >> KIND & 3 {
            NOBODY => self.set(line, ONE, bit),
            ONE if value == bit => (),
            ONE => {
                let sharers = 1 << value | 1 << bit;
                let place = match self.unused.pop() {
                    Some(place) => {
                        self.several[place as usize] = sharers;
                        place
                    }
                    None => {
                        self.several.push(sharers);
                        (self.several.len() - 1) as u32
                    }
                };
                self.set(line, SEVERAL, place);
            }
            OWNER => debug_assert_eq!(value, core),
            _ => self.several[value as usize] |= 1 << bit,
        }
    }

    /// Records that a core has written the line, and that of the last-level caches only those in `groups` may have it.
    #[inline]
    pub(crate) fn own(&mut self, line: u32, core: u32, groups: u32) {
        let entry = &mut self.entries[line as usize];
        let packed = *entry;
        *entry = u64::from(groups) | OWNER << KIND | u64::from(core) << VALUE;
        if packed >> KIND & 3 == SEVERAL {
            self.unused.push((packed >> VALUE) as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compares with a list of unpacked entries.
        #[test]
        fn packed_entries_hold_what_unpacked_ones_hold(
            cores in prop_oneof![Just(4u32), Just(64), Just(200)],
            steps in proptest::collection::vec((0u32..6, 0u32..200, 0u8..5), 1..400),
        ) {
            let mut directory = Directory::new(6, cores as usize);
            let mut expected = [Entry::default(); 6];
            for (line, core, step) in steps {
                let core = core % cores;
                let group = core % 32;
                let entry = &mut expected[line as usize];
                match step {
                    0 => {
                        directory.add_group(line, group);
                        entry.groups |= 1 << group;
                    }
                    1 => {
                        directory.remove_group(line, group);
                        entry.groups &= !(1 << group);
                    }
                    2 => {
                        directory.disown(line);
                        entry.owner = 0;
                    }
                    3 => {
                        if entry.owner != core + 1 {
                            directory.disown(line);
                            entry.owner = 0;
                        }
                        directory.add_sharer(line, core);
                        entry.sharers |= directory.bit(core);
                    }
                    _ => {
                        directory.own(line, core, entry.groups & 1);
                        *entry = Entry {
                            sharers: directory.bit(core),
                            groups: entry.groups & 1,
                            owner: core + 1,
                        };
                    }
                }
                prop_assert_eq!(directory.entry(line), *entry);
            }
        }
    }
}
