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

/// Sums of `N` quantities over the time of a run, as one [`Timeline`] each has them.
#[derive(Clone, Debug)]
pub(crate) struct Sums<const N: usize> {
    /// Log2 of the width of an interval.
    shift: u32,
    sums: Vec<[u64; N]>,
}

impl<const N: usize> Default for Sums<N> {
    fn default() -> Self {
        Self {
            shift: Timeline::default().width.trailing_zeros(),
            sums: Vec::new(),
        }
    }
}

impl<const N: usize> Sums<N> {
    /// Adds an amount of each quantity at `time`.
    #[inline(always)]
    pub(crate) fn add(&mut self, time: u64, amounts: [u64; N]) {
        match self.sums.get_mut((time >> self.shift) as usize) {
            Some(sums) => {
                for (sum, amount) in sums.iter_mut().zip(amounts) {
                    *sum += amount;
                }
            }
            None => self.add_later(time, amounts),
        }
    }

    /// Adds amounts at a time behind the last interval.
    #[cold]
    #[inline(never)]
    fn add_later(&mut self, time: u64, amounts: [u64; N]) {
        while (time >> self.shift) as usize >= INTERVALS {
            let joined = self.sums.chunks(2).map(|pair| {
                let sum = |at| pair.iter().map(|sums| sums[at]).sum();
                std::array::from_fn(sum)
            });
            self.sums = joined.collect();
            self.shift += 1;
        }
        let at = (time >> self.shift) as usize;
        if at >= self.sums.len() {
            self.sums.resize(at + 1, [0; N]);
        }
        for (sum, amount) in self.sums[at].iter_mut().zip(amounts) {
            *sum += amount;
        }
    }

    /// The timeline of each quantity.
    pub(crate) fn timelines(&self) -> [Timeline; N] {
        std::array::from_fn(|quantity| Timeline {
            width: 1 << self.shift,
            sums: self.sums.iter().map(|sums| sums[quantity]).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_when_intervals_are_joined() {
        let mut sums = Sums::default();
        for time in 0..10_000u64 {
            sums.add(time * 777_777, [time, 1]);
        }
        let [line, count] = sums.timelines();
        assert_eq!(count.sums.iter().sum::<u64>(), 10_000);
        assert!(line.sums.len() <= INTERVALS);
        assert_eq!(line.sums.iter().sum::<u64>(), 9_999 * 5_000);
        assert!(line.sums.len() as u64 * line.width > 9_999 * 777_777);
    }
}
