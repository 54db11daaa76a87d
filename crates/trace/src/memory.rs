//! The bound on the engine's memory, and the details dropped when it is reached.
//!
//! The tables of a process may take a quarter of the program's resident memory, 1 MiB for each thread, and a fixed
//! amount (`--memory`). The kernel is asked for their size at most a hundred times a second, and only when the process
//! has grown by a sixteenth. Above the bound the next [`Detail`] is dropped, and the profile says so.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::reservation;

/// Details, in the order in which they are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// The distinction of true and false sharing.
    FalseSharing,
    /// A clock for each word used for synchronisation; without it all share 2^20 clocks.
    Clocks,
    /// Page counts.
    Pages,
    /// Communication by reads of threads that have no bit of their own in a line's word.
    Readers,
}

impl Detail {
    const ALL: [Self; 4] = [Self::FalseSharing, Self::Clocks, Self::Pages, Self::Readers];

    /// The note in the profile when the detail is dropped.
    fn sentence(self) -> &'static str {
        match self {
            Self::FalseSharing => "true and false sharing are not distinguished from here on",
            Self::Clocks => "words used for synchronisation share 2^20 clocks from here on",
            Self::Pages => "pages are not counted from here on",
            Self::Readers => {
                "reads by threads that share reader bits are not counted as communication from here on"
            }
        }
    }
}

/// The memory bound of a process, and how many details it has dropped.
pub(crate) struct Budget {
    fixed: u64,
    given_up: AtomicU32,
    /// Resident size of the process at which to check again, in bytes.
    check_at: AtomicU64,
}

impl Budget {
    /// A bound of `fixed` bytes on top of what the program's size and threads allow.
    pub fn new(fixed: u64) -> Self {
        Self {
            fixed,
            given_up: AtomicU32::new(0),
            check_at: AtomicU64::new(0),
        }
    }

    /// Whether `detail` is still recorded.
    #[inline(always)]
    pub fn keeps(&self, detail: Detail) -> bool {
        self.given_up.load(Relaxed) <= detail as u32
    }

    /// Checks the memory taken; returns the detail to drop now and a note about it.
    pub fn check(&self, threads: u32) -> Option<(Detail, String)> {
        let total = resident()?;
        // The tables are part of the process, and may always take as much.
        if total <= self.fixed || total < self.check_at.load(Relaxed) {
            return None;
        }
        self.check_at
            .store(total + (total / 16).max(1 << 20), Relaxed);
        let tables = of_tables(
            &std::fs::read_to_string("/proc/self/smaps").ok()?,
            &reservation::reserved(),
        )?;
        let program = total.saturating_sub(tables);
        let bound = allowed(program, threads, self.fixed);
        if tables <= bound {
            return None;
        }
        let level = self.given_up.load(Relaxed);
        let detail = *Detail::ALL.get(level as usize)?;
        // Another thread may be checking at the same time.
        self.given_up
            .compare_exchange(level, level + 1, Relaxed, Relaxed)
            .ok()?;
        // Dropping this detail may not be enough: check again soon.
        self.check_at.store(0, Relaxed);
        let mega = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        Some((
            detail,
            format!(
                "memory bound reached ({:.0} MiB taken; a quarter of the program's {:.0} MiB, 1 MiB for each of {threads} threads and \
                 --memory {:.0}M allow {:.0} MiB): {}",
                mega(tables),
                mega(program),
                mega(self.fixed),
                mega(bound),
                detail.sentence()
            ),
        ))
    }
}

/// Bytes that the tables may take.
fn allowed(program: u64, threads: u32, fixed: u64) -> u64 {
    program / 4 + (u64::from(threads) << 20) + fixed
}

/// Resident bytes of this process.
fn resident() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

/// Resident bytes of the mappings in `smaps` that lie in one of `ranges` (start, end).
pub(crate) fn of_tables(smaps: &str, ranges: &[(u64, u64)]) -> Option<u64> {
    let mut ours = false;
    let mut sum = 0;
    for line in smaps.lines() {
        if let Some(rest) = line.strip_prefix("Rss:") {
            if ours {
                let kilo: u64 = rest.trim().strip_suffix(" kB")?.parse().ok()?;
                sum += kilo * 1024;
            }
        } else if let Some((from, to)) = line
            .split_once(' ')
            .and_then(|(range, _)| range.split_once('-'))
            && let (Ok(from), Ok(to)) = (u64::from_str_radix(from, 16), u64::from_str_radix(to, 16))
        {
            ours = ranges.iter().any(|&(start, end)| from < end && start < to);
        }
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_a_quarter_and_a_mebibyte_a_thread_and_the_rest() {
        assert_eq!(allowed(400 << 20, 3, 7 << 20), 110 << 20);
    }

    #[test]
    fn tables_are_distinguished_from_other_mappings() {
        let smaps = "7f0000000000-7f0000010000 rw-p 00000000 00:00 0 \nSize: 64 kB\nRss:                  12 kB\nPss: 12 kB\n\
                     7f0000020000-7f0000030000 rw-p 00000000 00:00 0 [heap]\nRss:                   8 kB\n";
        assert_eq!(
            of_tables(smaps, &[(0x7f00_0000_0000, 0x7f00_0001_0000)]),
            Some(12 << 10)
        );
        assert_eq!(
            of_tables(smaps, &[(0x7f00_0000_0000, 0x7f00_0003_0000)]),
            Some(20 << 10)
        );
        assert_eq!(of_tables(smaps, &[]), Some(0));
    }

    #[test]
    fn memory_of_tables_is_measured_and_details_are_dropped_in_order() {
        let table = crate::shadow::Shadow::reserve(6).unwrap();
        for address in (0..(1u64 << 30)).step_by(64 * 512) {
            table.word(address).store(1, Relaxed);
        }
        // One word in each of 32,768 pages: 128 MiB, more than anything else here.
        let budget = Budget::new(0);
        let (detail, text) = budget.check(1).unwrap();
        assert_eq!(detail, Detail::FalseSharing);
        assert!(
            text.starts_with("memory bound reached (") && text.ends_with("from here on"),
            "{text}"
        );
        assert!(!budget.keeps(Detail::FalseSharing) && budget.keeps(Detail::Clocks));
        assert_eq!(budget.check(1).unwrap().0, Detail::Clocks);
        assert_eq!(Budget::new(1 << 40).check(1), None);
        table.clear();
        assert_eq!(budget.check(1), None, "given back");
    }
}
