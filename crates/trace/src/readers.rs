//! Reader bits beyond those in a line's word: one shadow table for each 64 further reader numbers, reserved when the first
//! such thread reads. Lines that need them carry [`crate::line::EXTENDED`]; a writer then clears their bits.
//!
//! Numbers in the word are given once. The others are given 64 at a time, and when all 64 threads of a group have ended, its table
//! is emptied and the group given again: nobody who had read anything is left, so no thread finds another's bits.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

use crate::line::READERS;
use crate::shadow::Shadow;

/// Tables of 64 readers each. Numbers in the word use the first, for lines whose word holds no bits.
const GROUPS: usize = 66;
/// Readers in a group.
const SIZE: u32 = 64;
/// Reader numbers are below.
pub(crate) const NUMBERS: usize = GROUPS * SIZE as usize;

/// Gives reader numbers to threads.
pub struct Slots {
    /// Numbers in the word that were given.
    inner: u32,
    /// The group that is being given, and how many of its numbers were.
    group: usize,
    given: u32,
    /// Threads alive in each group.
    alive: [u32; GROUPS],
    /// Numbers given when every group had threads alive.
    shared: u32,
}

impl Default for Slots {
    fn default() -> Self {
        Self {
            inner: 0,
            group: 1,
            given: 0,
            alive: [0; GROUPS],
            shared: 0,
        }
    }
}

impl Slots {
    /// A number for a new thread, and whether it is the thread's alone. Empties a group of `readers` to give it again.
    pub fn give(&mut self, readers: &Readers) -> (u32, bool) {
        if self.inner < READERS {
            self.inner += 1;
            return (self.inner - 1, true);
        }
        if self.given == SIZE {
            match (1..GROUPS).find(|&group| self.alive[group] == 0) {
                Some(free) => {
                    readers.empty(free);
                    (self.group, self.given) = (free, 0);
                }
                None => {
                    self.shared += 1;
                    let number = SIZE + self.shared % ((GROUPS as u32 - 1) * SIZE);
                    self.alive[(number / SIZE) as usize] += 1;
                    return (number, false);
                }
            }
        }
        self.given += 1;
        self.alive[self.group] += 1;
        (self.group as u32 * SIZE + self.given - 1, true)
    }

    /// The thread with this number has ended.
    pub fn take_back(&mut self, number: u32) {
        if number >= SIZE {
            let alive = &mut self.alive[(number / SIZE) as usize];
            *alive = alive.saturating_sub(1);
        }
    }
}

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

    /// Forgets all that a group has read.
    fn empty(&self, group: usize) {
        if let Some(Some(table)) = self.groups[group].get() {
            table.clear();
        }
    }

    /// Gives up all tables' memory.
    pub fn clear(&self) {
        for group in 0..GROUPS {
            self.empty(group);
        }
    }

    /// How many threads can be told apart at once.
    #[must_use]
    pub fn limit() -> u32 {
        READERS + (GROUPS as u32 - 1) * SIZE
    }
}

const _: () = assert!(READERS < 64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_given_again_when_all_its_threads_have_ended_and_is_empty_then() {
        let readers = Readers::new(6);
        let mut slots = Slots::default();
        let first: Vec<u32> = (0..READERS + SIZE)
            .map(|_| slots.give(&readers).0)
            .collect();
        assert_eq!(first[READERS as usize], SIZE);
        assert!(readers.mark(0x1000, SIZE + 3) && !readers.mark(0x1000, SIZE + 3));
        for &number in &first[READERS as usize + 1..] {
            slots.take_back(number);
        }
        // One is alive: the next group is begun.
        assert_eq!(slots.give(&readers), (2 * SIZE, true));
        slots.take_back(SIZE);
        for _ in 1..SIZE {
            slots.give(&readers);
        }
        assert_eq!(slots.give(&readers), (SIZE, true));
        assert!(readers.mark(0x1000, SIZE + 3), "nobody has read it");
    }

    #[test]
    fn as_many_as_promised_live_at_once() {
        let readers = Readers::new(6);
        let mut slots = Slots::default();
        let mut given: Vec<u32> = (0..Readers::limit())
            .map(|_| slots.give(&readers))
            .map(|(number, own)| {
                assert!(own);
                number
            })
            .collect();
        given.sort_unstable();
        given.dedup();
        assert_eq!(given.len() as u32, Readers::limit());
        assert!(Readers::limit() >= 4096);
        assert!(!slots.give(&readers).1);
    }
}
