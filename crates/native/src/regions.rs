//! The program's executable addresses.
//!
//! The host's mappings are never executable: to the engine, the program's code is data. The program's requested
//! protection is stored here, so that a jump to data faults as it does natively, and writes to translated code are
//! detected.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;

/// A range of executable addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// End address, exclusive.
    pub end: u64,
    /// Whether the program may also write there.
    pub writable: bool,
}

/// Executable ranges.
#[derive(Default)]
pub struct Regions {
    /// By their start; they do not overlap.
    ranges: BTreeMap<u64, Region>,
    /// The one found last, which usually is the next to be found: its start, and what it is.
    last: Cell<Option<(u64, Region)>>,
}

impl Regions {
    /// No executable ranges.
    pub const fn new() -> Self {
        Self {
            ranges: BTreeMap::new(),
            last: Cell::new(None),
        }
    }

    /// The range that contains `at`.
    pub fn find(&self, at: u64) -> Option<Region> {
        if let Some((start, region)) = self.last.get()
            && (start..region.end).contains(&at)
        {
            return Some(region);
        }
        let (&start, &region) = self.ranges.range(..=at).next_back()?;
        let found = at < region.end;
        if found {
            self.last.set(Some((start, region)));
        }
        found.then_some(region)
    }

    /// End of the contiguous executable addresses from `at`, checked for at most `enough` bytes.
    pub fn end(&self, at: u64, enough: u64) -> Option<u64> {
        let mut end = self.find(at)?.end;
        while end - at < enough {
            let Some(next) = self.find(end) else { break };
            end = next.end;
        }
        Some(end)
    }

    /// The parts of a range that are executable, and those that are not, in order.
    pub fn pieces(&self, range: Range<u64>) -> Vec<(Range<u64>, Option<Region>)> {
        let mut pieces = Vec::new();
        let mut at = range.start;
        let before = self.ranges.range(..=at).next_back();
        let first = before.map_or(at, |(&start, _)| start);
        for (&start, &region) in self.ranges.range(first..range.end) {
            if region.end <= at {
                continue;
            }
            if at < start {
                pieces.push((at..start, None));
            }
            let end = region.end.min(range.end);
            pieces.push((at.max(start)..end, Some(region)));
            at = end;
        }
        if at < range.end {
            pieces.push((at..range.end, None));
        }
        pieces
    }

    /// All ranges in order, and whether the program may also write there.
    pub fn all(&self) -> impl Iterator<Item = (Range<u64>, bool)> {
        let ranges = self.ranges.iter();
        ranges.map(|(&start, region)| (start..region.end, region.writable))
    }

    /// Whether any address in `start..end` is executable.
    pub fn overlap(&self, start: u64, end: u64) -> bool {
        self.ranges
            .range(..end)
            .next_back()
            .is_some_and(|(_, region)| region.end > start)
    }

    /// Makes `start..end` not executable.
    pub fn remove(&mut self, start: u64, end: u64) {
        self.last.set(None);
        let cut: Vec<(u64, Region)> = self
            .ranges
            .range(..end)
            .rev()
            .take_while(|(_, region)| region.end > start)
            .map(|(&at, &region)| (at, region))
            .collect();
        for (at, region) in cut {
            self.ranges.remove(&at);
            if at < start {
                let head = Region {
                    end: start,
                    ..region
                };
                self.ranges.insert(at, head);
            }
            if region.end > end {
                self.ranges.insert(end, region);
            }
        }
    }

    /// Makes `start..end` executable.
    pub fn insert(&mut self, start: u64, end: u64, writable: bool) {
        self.remove(start, end);
        if start < end {
            self.ranges.insert(start, Region { end, writable });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Region, Regions};

    #[test]
    fn a_hole_splits_a_range() {
        let mut regions = Regions::new();
        regions.insert(0x1000, 0x9000, true);
        // What was found before is not found afterwards.
        assert!(regions.find(0x3000).is_some());
        regions.remove(0x3000, 0x4000);
        let head = Region {
            end: 0x3000,
            writable: true,
        };
        assert_eq!(regions.find(0x2fff), Some(head));
        assert_eq!(regions.find(0x3000), None);
        assert_eq!(regions.find(0x4000).map(|r| r.end), Some(0x9000));
        assert_eq!(regions.find(0x9000), None);
    }

    #[test]
    fn a_later_range_replaces_what_it_covers() {
        let mut regions = Regions::new();
        regions.insert(0x1000, 0x3000, false);
        regions.insert(0x4000, 0x6000, false);
        regions.insert(0x2000, 0x5000, true);
        assert_eq!(regions.find(0x1000).map(|r| r.end), Some(0x2000));
        assert_eq!(regions.find(0x4fff).map(|r| r.writable), Some(true));
        assert_eq!(regions.find(0x5000).map(|r| r.end), Some(0x6000));
    }

    #[test]
    fn adjacent_ranges_are_contiguous() {
        let mut regions = Regions::new();
        regions.insert(0x1000, 0x2000, false);
        regions.insert(0x2000, 0x3000, true);
        assert_eq!(regions.end(0x1ff8, 15), Some(0x3000));
        assert_eq!(regions.end(0x1000, 15), Some(0x2000));
        assert_eq!(regions.end(0x3000, 15), None);
        assert!(regions.overlap(0x2fff, 0x4000));
        assert!(!regions.overlap(0x3000, 0x4000));
        assert!(!regions.overlap(0, 0x1000));
    }
}
