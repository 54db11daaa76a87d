//! Reader bits beyond those in a line's word: one shadow table for each 64 further reader numbers, reserved when the
//! first such thread reads. Lines with such readers carry [`crate::line::EXTENDED`]; a write clears their bits.
//!
//! Numbers with a bit in the word are given out once. The others are given out in groups of 64. When all 64 threads of
//! a group have ended, its table is cleared and the group is reused, so no thread finds bits of an earlier one.

use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use crate::line::READERS;
use crate::shadow::{Shadow, prefetch};

/// Tables of 64 readers each. The first serves readers with a bit in the word, for lines whose word holds none.
const GROUPS: usize = 66;
/// Readers in a group.
const SIZE: u32 = 64;
/// Upper bound of reader numbers.
pub(crate) const NUMBERS: usize = GROUPS * SIZE as usize;

/// Gives reader numbers to threads.
pub struct Slots {
    /// Numbers given that have a bit in the word.
    inner: u32,
    /// The group in use, and how many of its numbers were given.
    group: usize,
    given: u32,
    /// Live threads of each group.
    alive: [u32; GROUPS],
    /// Numbers given while every group had live threads.
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
    /// A number for a new thread, and whether no other live thread has it. May clear a group of `readers` to reuse it.
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

    /// Releases the number of a thread that has ended.
    pub fn take_back(&mut self, number: u32) {
        if number >= SIZE {
            let alive = &mut self.alive[(number / SIZE) as usize];
            *alive = alive.saturating_sub(1);
        }
    }
}

/// The tables of reader bits, reserved as needed.
pub struct Readers {
    shift: u32,
    /// Groups from here on have no table.
    used: AtomicUsize,
    groups: [OnceLock<Option<Shadow>>; GROUPS],
}

impl Readers {
    /// No tables yet, for lines of `1 << shift` bytes.
    #[must_use]
    pub fn new(shift: u32) -> Self {
        Self {
            shift,
            used: AtomicUsize::new(0),
            groups: std::array::from_fn(|_| OnceLock::new()),
        }
    }

    /// Marks the line at `address` as read by reader `number`; returns whether it was not marked before.
    ///
    /// Reader numbers beyond the tables, or beyond the address space left for them, share bits: a read may then be
    /// missed because another reader's was counted.
    pub fn mark(&self, address: u64, number: u32) -> bool {
        let group = (number / 64) as usize % GROUPS;
        let bit = 1u64 << (number % 64);
        let table = self.groups[group].get_or_init(|| {
            self.used.fetch_max(group + 1, Relaxed);
            Shadow::reserve(self.shift).ok()
        });
        match table {
            Some(table) => {
                let word = table.word(address);
                word.load(Relaxed) & bit == 0 && word.fetch_or(bit, Relaxed) & bit == 0
            }
            None => false,
        }
    }

    /// Whether the line at `address` is marked as read by reader `number`; `None` if no line is.
    #[inline(always)]
    pub fn is_marked(&self, address: u64, number: u32) -> Option<bool> {
        let (table, bit) = self.found(number)?;
        Some(table.word(address).load(Relaxed) & bit != 0)
    }

    /// [`Readers::mark`] if [`Readers::is_marked`] has an answer.
    #[inline(always)]
    pub fn mark_found(&self, address: u64, number: u32) {
        if let Some((table, bit)) = self.found(number) {
            table.word(address).fetch_or(bit, Relaxed);
        }
    }

    /// Prefetches the word in which [`Readers::mark_found`] would mark the line at `address`.
    #[inline(always)]
    pub fn prefetch(&self, address: u64, number: u32) {
        if let Some((table, _)) = self.found(number) {
            prefetch(table.word(address));
        }
    }

    #[inline(always)]
    fn found(&self, number: u32) -> Option<(&Shadow, u64)> {
        let table = self.groups[(number / 64) as usize % GROUPS]
            .get()?
            .as_ref()?;
        Some((table, 1 << (number % 64)))
    }

    /// Clears the readers of the line at `address`.
    #[inline(always)]
    pub fn reset(&self, address: u64) {
        let used = self.used.load(Relaxed).min(GROUPS);
        let groups = self.groups[..used].iter();
        for table in groups.filter_map(|group| group.get()).flatten() {
            let word = table.word(address);
            if word.load(Relaxed) != 0 {
                word.store(0, Relaxed);
            }
        }
    }

    /// Clears the readers of a range of lines.
    pub fn forget(&self, address: u64, length: u64) {
        for table in self.groups.iter().filter_map(|group| group.get()).flatten() {
            table.forget(address, length);
        }
    }

    /// Clears the bits of a group.
    fn empty(&self, group: usize) {
        if let Some(Some(table)) = self.groups[group].get() {
            table.clear();
        }
    }

    /// Clears all tables and frees their memory.
    pub fn clear(&self) {
        for group in 0..GROUPS {
            self.empty(group);
        }
    }

    /// How many live threads can be distinguished.
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
    fn a_group_is_reused_empty_when_all_its_threads_have_ended() {
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
        // One thread is still alive: the next group is used.
        assert_eq!(slots.give(&readers), (2 * SIZE, true));
        slots.take_back(SIZE);
        for _ in 1..SIZE {
            slots.give(&readers);
        }
        assert_eq!(slots.give(&readers), (SIZE, true));
        assert!(readers.mark(0x1000, SIZE + 3), "the group was cleared");
    }

    #[test]
    fn as_many_threads_as_promised_are_distinguished() {
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
