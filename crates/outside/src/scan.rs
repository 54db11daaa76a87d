//! Page scanning: what processes use of their mappings, by the kernel's marks of used pages.
//!
//! The kernel shows for each mapping how much of it was used since the marks were cleared, and which of its pages are
//! in memory, but not which of them were used. So each page counts with the share of its mapping that was used.

use std::collections::BTreeMap;
use std::io;

use numaloc_sys::references;

use crate::memory;
use crate::pagemap::{PAGE, PageMap};

/// Accesses for which one use of a page counts: how many there were is not seen.
pub const USE: u64 = 1000;
/// Most pages of a process that are taken in a round: of more, some stand for the others, and others in each round.
const PAGES: u64 = 8192;

/// Scans processes.
#[derive(Debug, Default)]
pub struct Scanner {
    maps: BTreeMap<i32, PageMap>,
    rounds: u64,
}

impl Scanner {
    /// From now on, use of a process's pages counts.
    ///
    /// # Errors
    /// The kernel's.
    pub fn begin(&self, pid: i32) -> io::Result<()> {
        references::clear(pid)
    }

    /// A process has ended.
    pub fn leave(&mut self, pid: i32) {
        self.maps.remove(&pid);
    }

    /// Ends a round: the next one takes other pages of large processes.
    pub fn next(&mut self) {
        self.rounds += 1;
    }

    /// Passes each page that a process may have used since the last round, and the accesses for which it counts.
    ///
    /// # Errors
    /// The kernel's: the process has ended.
    pub fn round(&mut self, pid: i32, mut take: impl FnMut(u64, u64)) -> io::Result<()> {
        let mut used = memory::used(pid)?;
        references::clear(pid)?;
        used.retain(|used| used.referenced > 0 && used.resident > 0);
        let pages: u64 = used.iter().map(|used| used.resident / PAGE).sum();
        let stride = pages.div_ceil(PAGES).max(1);
        if let std::collections::btree_map::Entry::Vacant(entry) = self.maps.entry(pid) {
            entry.insert(PageMap::open(pid)?);
        }
        let Some(map) = self.maps.get_mut(&pid) else {
            return Ok(());
        };
        let mut number = self.rounds;
        for used in used {
            let share = used.referenced as f64 / used.resident as f64;
            let weight = (share.min(1.0) * (USE * stride) as f64).round().max(1.0) as u64;
            for range in map.present(used.start..used.end)? {
                for page in range.start / PAGE..range.end / PAGE {
                    number += 1;
                    if number.is_multiple_of(stride) {
                        take(page * PAGE, weight);
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_are_used_count_and_the_round_takes_a_bounded_number() {
        if !references::is_supported() {
            return;
        }
        let pid = std::process::id() as i32;
        let mut memory = vec![1_u8; 48 << 20];
        let range = memory.as_ptr() as u64..memory.as_ptr() as u64 + (48 << 20);
        let mut scanner = Scanner::default();
        scanner.begin(pid).unwrap();
        memory.iter_mut().step_by(4096).for_each(|byte| *byte += 1);
        std::hint::black_box(&mut memory);
        let (mut pages, mut accesses, mut all) = (0, 0, 0);
        scanner
            .round(pid, |address, weight| {
                all += 1;
                if range.contains(&address) {
                    pages += 1;
                    accesses += weight;
                }
            })
            .unwrap();
        assert!(pages > 1000 && all <= PAGES + 512, "{pages} of {all}");
        // All of it was used: about a use for each of its 12,288 pages.
        assert!((8_000_000..16_000_000).contains(&accesses), "{accesses}");
        assert!(scanner.round(0, |_, _| {}).is_err());
    }
}
