//! A quantity over the time of a run, in at most 256 intervals of equal width.

use serde::{Deserialize, Serialize};

/// Largest number of intervals; in longer runs, neighbours are joined and the width doubles.
const INTERVALS: usize = 256;

/// Sums by interval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    /// Picoseconds per interval: a power of two.
    pub width: u64,
    /// Sum of each interval, from time 0.
    pub sums: Vec<u64>,
}

impl Default for Timeline {
    fn default() -> Self {
        Self {
            width: 1 << 20,
            sums: Vec::new(),
        }
    }
}

impl Timeline {
    /// Adds `amount` at `time`.
    #[inline]
    pub(crate) fn add(&mut self, time: u64, amount: u64) {
        let at = (time >> self.width.trailing_zeros()) as usize;
        match self.sums.get_mut(at) {
            Some(sum) => *sum += amount,
            None => self.add_later(time, amount),
        }
    }

    /// Adds `amount` at a time behind the last interval.
    #[cold]
    fn add_later(&mut self, time: u64, amount: u64) {
        let mut at = (time >> self.width.trailing_zeros()) as usize;
        while at >= INTERVALS {
            self.sums = self.sums.chunks(2).map(|pair| pair.iter().sum()).collect();
            self.width *= 2;
            at = (time >> self.width.trailing_zeros()) as usize;
        }
        if at >= self.sums.len() {
            self.sums.resize(at + 1, 0);
        }
        self.sums[at] += amount;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_when_intervals_are_joined() {
        let mut line = Timeline::default();
        for time in 0..10_000u64 {
            line.add(time * 777_777, time);
        }
        assert!(line.sums.len() <= INTERVALS);
        assert_eq!(line.sums.iter().sum::<u64>(), 9_999 * 5_000);
        assert!(line.sums.len() as u64 * line.width > 9_999 * 777_777);
    }
}
