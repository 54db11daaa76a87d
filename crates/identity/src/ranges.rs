//! Address ranges with values: later ranges replace earlier ones where they overlap.

use std::collections::BTreeMap;

/// Disjoint ranges, each with a value.
#[derive(Clone, Debug)]
pub struct Ranges<T>(BTreeMap<u64, (u64, T)>);

impl<T> Default for Ranges<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Copy> Ranges<T> {
    /// Whether there are no ranges.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets `start..end` to `value`; earlier ranges keep the rest.
    pub fn set(&mut self, start: u64, end: u64, value: T) {
        if start < end {
            self.clear(start, end);
            self.0.insert(start, (end, value));
        }
    }

    /// Removes `start..end` from all ranges.
    pub fn clear(&mut self, start: u64, end: u64) {
        let overlapping: Vec<_> = self.overlapping(start, end).collect();
        for (from, to, value) in overlapping {
            self.0.remove(&from);
            if from < start {
                self.0.insert(from, (start, value));
            }
            if to > end {
                self.0.insert(end, (to, value));
            }
        }
    }

    /// The range that holds `address`: start, end, value.
    #[must_use]
    pub fn at(&self, address: u64) -> Option<(u64, u64, T)> {
        let (&start, &(end, value)) = self.0.range(..=address).next_back()?;
        (end > address).then_some((start, end, value))
    }

    /// The ranges that overlap `start..end`, ascending.
    pub fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64, T)> {
        let before = self
            .0
            .range(..start)
            .next_back()
            .filter(|(_, (to, _))| *to > start);
        before
            .into_iter()
            .chain(self.0.range(start..end.max(start)))
            .map(|(&from, &(to, value))| (from, to, value))
    }

    /// All ranges, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64, T)> {
        self.0.iter().map(|(&from, &(to, value))| (from, to, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_ranges_replace_earlier_ones() {
        let mut ranges = Ranges::default();
        ranges.set(10, 40, 'a');
        ranges.set(20, 30, 'b');
        let all: Vec<_> = ranges.iter().collect();
        assert_eq!(all, [(10, 20, 'a'), (20, 30, 'b'), (30, 40, 'a')]);
        ranges.set(15, 35, 'c');
        let all: Vec<_> = ranges.iter().collect();
        assert_eq!(all, [(10, 15, 'a'), (15, 35, 'c'), (35, 40, 'a')]);
        ranges.clear(0, 20);
        assert_eq!(ranges.at(14), None);
        assert_eq!(ranges.at(20), Some((20, 35, 'c')));
        assert_eq!(ranges.at(40), None);
        ranges.set(5, 5, 'd');
        assert_eq!(ranges.overlapping(0, 36).count(), 2);
    }
}
