//! The threads of a process: their numbers, and how many are alive.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::line;
use crate::readers::{Readers, Slots};

/// Numbers of a new thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    /// Number in the journal, from 0.
    pub thread: u32,
    /// Reader number.
    pub reader: u32,
    /// This is the first thread that shares a number with another one.
    pub first_crowded: bool,
}

/// Gives numbers to threads.
#[derive(Default)]
pub(crate) struct Population {
    next: AtomicU32,
    slots: Mutex<Slots>,
    alive: AtomicU32,
    crowded: AtomicBool,
}

impl Population {
    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a thread.
    pub fn add(&self, readers: &Readers) -> Numbers {
        let thread = self.next.fetch_add(1, Relaxed);
        let (reader, own) = self.slots().give(readers);
        self.alive.fetch_add(1, Relaxed);
        let mixed_up = !own || thread >= line::MAX_WRITER;
        Numbers {
            thread,
            reader,
            first_crowded: mixed_up && !self.crowded.swap(true, Relaxed),
        }
    }

    /// Releases the reader number of a thread that has ended.
    pub fn remove(&self, reader: u32) {
        self.slots().take_back(reader);
        self.alive.fetch_sub(1, Relaxed);
    }

    /// Number of threads alive.
    pub fn alive(&self) -> u32 {
        self.alive.load(Relaxed)
    }

    /// Number of threads so far.
    pub fn total(&self) -> u32 {
        self.next.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_numbered_in_order_and_counted_while_alive() {
        let (population, readers) = (Population::default(), Readers::new(6));
        let numbers: Vec<Numbers> = (0..3).map(|_| population.add(&readers)).collect();
        assert_eq!(
            numbers.iter().map(|one| one.thread).collect::<Vec<_>>(),
            [0, 1, 2]
        );
        population.remove(numbers[1].reader);
        assert_eq!((population.alive(), population.total()), (2, 3));
    }

    #[test]
    fn only_the_first_thread_without_a_reader_number_of_its_own_is_reported() {
        let (population, readers) = (Population::default(), Readers::new(6));
        let crowded = |population: &Population| population.add(&readers).first_crowded;
        assert!((0..Readers::limit()).all(|_| !crowded(&population)));
        assert!(crowded(&population) && !crowded(&population));
    }
}
