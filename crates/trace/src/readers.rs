//! Reader bits beyond those in a line's word: one shadow table for each 64 further reader numbers, reserved when the first
//! such thread reads. Lines that need them carry [`crate::line::EXTENDED`]; a writer then clears their bits.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

use crate::line::READERS;
use crate::shadow::Shadow;

/// Tables of 64 readers each: with the word's own bits, 4,142 threads are told apart.
const GROUPS: usize = 64;

/// The tables reserved so far.
pub struct Readers {
    shift: u32,
    groups: [OnceLock<Option<Shadow>>; GROUPS],
}

impl Readers {
    /// None yet, for lines of `1 << shift` bytes.
    #[must_use]
    pub fn new(shift: u32) -> Self {
        Self {
            shift,
            groups: std::array::from_fn(|_| OnceLock::new()),
        }
    }

    /// Marks the line at `address` as read by reader `number`; says whether it was new.
    ///
    /// Reader numbers beyond the tables, or beyond the address space left for them, share bits: a read may then be taken
    /// for one that was counted already.
    pub fn mark(&self, address: u64, number: u32) -> bool {
        // Numbers that have a bit in the word come here too, for lines whose word must not hold bits.
        let group = (number / 64) as usize % GROUPS;
        let bit = 1u64 << (number % 64);
        let table = self.groups[group].get_or_init(|| Shadow::reserve(self.shift).ok());
        match table {
            Some(table) => {
                let word = table.word(address);
                word.load(Relaxed) & bit == 0 && word.fetch_or(bit, Relaxed) & bit == 0
            }
            None => false,
        }
    }

    /// Forgets who has read the line at `address`.
    pub fn reset(&self, address: u64) {
        for table in self.groups.iter().filter_map(|group| group.get()).flatten() {
            let word = table.word(address);
            if word.load(Relaxed) != 0 {
                word.store(0, Relaxed);
            }
        }
    }

    /// Forgets a range of lines.
    pub fn forget(&self, address: u64, length: u64) {
        for table in self.groups.iter().filter_map(|group| group.get()).flatten() {
            table.forget(address, length);
        }
    }

    /// How many threads can be told apart at once.
    #[must_use]
    pub fn limit() -> u32 {
        (GROUPS as u32) * 64
    }
}

const _: () = assert!(READERS < 64);
