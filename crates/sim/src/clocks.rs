//! The queue of PUs that can continue, by their clocks: the earliest first, of equal ones the lowest PU.
//!
//! A tournament over all PUs: each inner node has the earlier clock of its two children. A change takes the loads and
//! stores of one path, whose addresses do not depend on each other.

/// Clocks of the queued PUs.
#[derive(Clone, Debug)]
pub(crate) struct Clocks {
    /// The root at 1, the children of `at` at `2 * at` and `2 * at + 1`; [`NOT_QUEUED`] where no PU is queued.
    earliest: Vec<u64>,
    /// Position of the first leaf: a power of two.
    leaves: usize,
}

const NOT_QUEUED: u64 = u64::MAX;

impl Clocks {
    /// An empty queue for PUs below `pus`.
    pub(crate) fn new(pus: usize) -> Self {
        let leaves = pus.next_power_of_two();
        Self {
            earliest: vec![NOT_QUEUED; 2 * leaves],
            leaves,
        }
    }

    /// The earliest clock, if a PU is queued.
    #[inline]
    pub(crate) fn first(&self) -> Option<u64> {
        let first = self.earliest[1];
        (first != NOT_QUEUED).then_some(first)
    }

    /// Queues a PU with a clock below `u64::MAX`, or changes its clock.
    #[inline]
    pub(crate) fn queue(&mut self, pu: usize, clock: u64) {
        let mut at = self.leaves + pu;
        let mut earlier = clock;
        self.earliest[at] = earlier;
        while at > 1 {
            earlier = earlier.min(self.earliest[at ^ 1]);
            at /= 2;
            self.earliest[at] = earlier;
        }
    }

    /// Removes the PU with the earliest clock; of equal clocks, the lowest PU.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<usize> {
        let first = self.first()?;
        let mut at = 1;
        while at < self.leaves {
            at *= 2;
            at += usize::from(self.earliest[at] != first);
        }
        let pu = at - self.leaves;
        self.queue(pu, NOT_QUEUED);
        Some(pu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compares with a sorted set.
        #[test]
        fn the_earliest_clock_and_of_equal_ones_the_lowest_pu_comes_first(
            pus in 1usize..70,
            steps in proptest::collection::vec((0usize..70, 0u64..20), 1..300),
        ) {
            let mut clocks = Clocks::new(pus);
            let mut expected = std::collections::BTreeSet::new();
            for (pu, clock) in steps {
                if pu < pus && expected.iter().all(|&(_, queued)| queued != pu) {
                    clocks.queue(pu, clock);
                    expected.insert((clock, pu));
                } else {
                    prop_assert_eq!(clocks.pop(), expected.pop_first().map(|(_, pu)| pu));
                }
                prop_assert_eq!(clocks.first(), expected.first().map(|&(clock, _)| clock));
            }
        }
    }
}
