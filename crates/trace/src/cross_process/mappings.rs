//! The mappings of a process that other processes may share.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{PoisonError, RwLock};

use numaloc_identity::ranges::Ranges;

/// The shared object behind a range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapped {
    /// Number of the object in the cross-process table.
    pub object: u32,
    /// Added to an address gives the offset in the object (modulo 2^64).
    pub origin: u64,
    /// Whether a process may write the object: otherwise the process's own tables are enough.
    pub written: bool,
}

/// The process's shared mappings.
#[derive(Default)]
pub(crate) struct Mappings {
    ranges: RwLock<Ranges<Mapped>>,
    /// Whether there are any: most programs have none.
    any: AtomicBool,
    /// Whether there were any that may be written, and that may only be read.
    written: AtomicBool,
    only_read: AtomicBool,
    /// The last [`super::Table::changes`] that the mappings were brought in line with.
    seen: AtomicU64,
    /// Incremented with every change.
    generation: AtomicU64,
}

impl Mappings {
    /// The parent's mappings, in a forked child.
    pub fn inherited(&self) -> Self {
        // Another of the parent's threads may have held the lock, and will not release it here.
        let ranges = match self.ranges.try_read() {
            Ok(ranges) => ranges.clone(),
            Err(_) => Ranges::default(),
        };
        let flag = |flag: &AtomicBool| AtomicBool::new(flag.load(Relaxed));
        Self {
            any: AtomicBool::new(!ranges.is_empty()),
            written: flag(&self.written),
            only_read: flag(&self.only_read),
            ranges: RwLock::new(ranges),
            ..Self::default()
        }
    }

    /// Whether there are any mappings.
    #[inline(always)]
    pub fn any(&self) -> bool {
        self.any.load(Relaxed)
    }

    /// Whether there were any of objects that a process may write.
    #[inline(always)]
    pub fn any_written(&self) -> bool {
        self.written.load(Relaxed)
    }

    /// Whether objects that were only read may be written since: [`Table::changes`](super::Table::changes) is another
    /// number than before.
    #[inline(always)]
    pub fn have_changed(&self, changes: impl FnOnce() -> u64) -> bool {
        self.only_read.load(Relaxed) && {
            let now = changes();
            self.seen.swap(now, Relaxed) != now
        }
    }

    /// Changes mappings of objects that may be written, and were only read; returns them.
    pub fn take_written(&self, is_written: impl Fn(u32) -> bool) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        self.change(|ranges| {
            let only_read = ranges.iter().filter(|(.., mapped)| !mapped.written);
            let (taken, left): (Vec<_>, Vec<_>) =
                only_read.partition(|(.., mapped)| is_written(mapped.object));
            for (start, end, mapped) in taken {
                let written = true;
                ranges.set(start, end, Mapped { written, ..mapped });
                found.push((start, end));
            }
            self.only_read.store(!left.is_empty(), Relaxed);
            self.written.fetch_or(!found.is_empty(), Relaxed);
        });
        found
    }

    /// A number that changes whenever the mappings do.
    #[inline(always)]
    pub fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }

    fn change(&self, change: impl FnOnce(&mut Ranges<Mapped>)) {
        let mut ranges = self.ranges.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut ranges);
        self.any.store(!ranges.is_empty(), Relaxed);
        self.generation.fetch_add(1, Relaxed);
    }

    /// Adds a mapped range.
    pub fn add(&self, start: u64, end: u64, mapped: Mapped) {
        let kind = match mapped.written {
            true => &self.written,
            false => &self.only_read,
        };
        self.change(|ranges| {
            ranges.set(start, end, mapped);
            kind.store(true, Relaxed);
        });
    }

    /// Removes a range that was unmapped or replaced.
    pub fn remove(&self, start: u64, end: u64) {
        let here = || {
            let ranges = self.ranges.read().unwrap_or_else(PoisonError::into_inner);
            ranges.overlapping(start, end).next().is_some()
        };
        if self.any() && here() {
            self.change(|ranges| ranges.clear(start, end));
        }
    }

    /// The object mapped at `address`, if any.
    pub fn at(&self, address: u64) -> Option<Mapped> {
        let ranges = self.ranges.read().unwrap_or_else(PoisonError::into_inner);
        ranges.at(address).map(|(_, _, mapped)| mapped)
    }

    /// The objects mapped in a range.
    pub fn objects(&self, start: u64, end: u64) -> Vec<u32> {
        let ranges = self.ranges.read().unwrap_or_else(PoisonError::into_inner);
        let found = ranges.overlapping(start, end);
        found.map(|(.., mapped)| mapped.object).collect()
    }

    /// Start and end of the mapping that begins at `start`, if any.
    pub fn segment(&self, start: u64) -> Option<(u64, u64)> {
        let ranges = self.ranges.read().unwrap_or_else(PoisonError::into_inner);
        let found = ranges.at(start)?;
        (found.0 == start).then_some((found.0, found.1))
    }

    /// All mappings as (start, end, object).
    pub fn all(&self) -> Vec<(u64, u64, Mapped)> {
        let ranges = self.ranges.read().unwrap_or_else(PoisonError::into_inner);
        ranges.iter().collect()
    }
}
