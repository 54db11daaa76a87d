//! The iterations of a loop as numbers from 0, and parts of it as the bounds that compiled code expects; no I/O.

use crate::ranges::{MAX_PARTS, Parts};

/// A loop: iteration `k` of `count` has the value `first + k * step`, in wrapping arithmetic of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    first: u64,
    step: u64,
    count: u64,
    /// Iterations of a part.
    part: u64,
    /// Number of parts, once that is known: each request needs it, and a division takes longer than the rest.
    parts: u32,
}

impl Bounds {
    /// From `first` while the value is below `end` (above, if not `up`), as libgomp describes loops. Values are
    /// compared as unsigned numbers; of signed ones the order is kept by [`Bounds::of_signed`].
    pub fn of_unsigned(up: bool, first: u64, end: u64, step: u64) -> Self {
        let (is_empty, away, stride) = match up {
            true => (first >= end, end.wrapping_sub(first), step),
            false => (first <= end, first.wrapping_sub(end), step.wrapping_neg()),
        };
        let count = match is_empty || stride == 0 {
            true => 0,
            false => (away - 1) / stride + 1,
        };
        Self::with(first, step, count)
    }

    /// As [`Bounds::of_unsigned`]; the step's sign is the direction.
    pub fn of_signed(first: i64, end: i64, step: i64) -> Self {
        // The difference from the least number orders signed values as unsigned ones.
        let from_least = |value: i64| (value as u64) ^ (1 << 63);
        let (from, to) = (from_least(first), from_least(end));
        let found = Self::of_unsigned(step > 0, from, to, step as u64);
        Self::with(first as u64, step as u64, found.count)
    }

    /// From `first` to `last` inclusive, as libomp describes loops; `None` if the iterations are 2^64.
    pub fn inclusive(first: i128, last: i128, step: i64) -> Option<Self> {
        let away = match step > 0 {
            true => last - first,
            false => first - last,
        };
        let count = match away < 0 || step == 0 {
            true => 0,
            false => u64::try_from(away / i128::from(step.unsigned_abs()) + 1).ok()?,
        };
        Some(Self::with(first as u64, step as u64, count))
    }

    fn with(first: u64, step: u64, count: u64) -> Self {
        Self {
            first,
            step,
            count,
            part: 1,
            parts: 0,
        }
    }

    /// In parts of `chunk` iterations, or of more if there would be more than [`MAX_PARTS`].
    pub fn in_chunks(mut self, chunk: u64) -> Self {
        let chunk = chunk.max(1);
        let least = self.count.div_ceil(MAX_PARTS).max(1);
        self.part = chunk.saturating_mul(least.div_ceil(chunk));
        self.parts = self.count.div_ceil(self.part) as u32;
        self
    }

    /// From one iteration to the next.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Number of parts; 0 before [`Bounds::in_chunks`].
    #[inline]
    pub fn parts(&self) -> u32 {
        self.parts
    }

    fn iterations(&self, parts: Parts) -> (u64, u64) {
        let to = u64::from(parts.to).saturating_mul(self.part);
        (u64::from(parts.from) * self.part, to.min(self.count))
    }

    fn value(&self, iteration: u64) -> u64 {
        self.first.wrapping_add(iteration.wrapping_mul(self.step))
    }

    /// The first value of `parts`, and the bound that compiled code compares with: `end` for the loop's last part,
    /// where one more step could wrap.
    pub fn open(&self, parts: Parts, end: u64) -> (u64, u64) {
        let (from, to) = self.iterations(parts);
        let end = match to == self.count {
            true => end,
            false => self.value(to),
        };
        (self.value(from), end)
    }

    /// The first and last values of `parts`, and whether the last is the loop's.
    pub fn closed(&self, parts: Parts) -> (u64, u64, bool) {
        let (from, to) = self.iterations(parts);
        (self.value(from), self.value(to - 1), to == self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iterations_are_counted_as_c_counts_them() {
        let signed = |first, end, step| Bounds::of_signed(first, end, step).count;
        assert_eq!(signed(0, 10, 3), 4);
        assert_eq!(signed(10, 0, -3), 4);
        assert_eq!(signed(5, 5, 1), 0);
        assert_eq!(signed(5, 4, 1), 0);
        assert_eq!(signed(-5, 5, 1), 10);
        assert_eq!(signed(i64::MIN, i64::MAX, 1), u64::MAX);
        let unsigned = |up, first, end, step| Bounds::of_unsigned(up, first, end, step).count;
        assert_eq!(unsigned(true, 0, u64::MAX, 1 << 62), 4);
        assert_eq!(unsigned(false, u64::MAX, 0, 1_u64.wrapping_neg()), u64::MAX);
        assert_eq!(unsigned(true, u64::MAX - 3, u64::MAX, 2), 2);
        let inclusive = |first, last, step| Bounds::inclusive(first, last, step).map(|b| b.count);
        assert_eq!(inclusive(0, 9, 3), Some(4));
        assert_eq!(inclusive(9, 0, -3), Some(4));
        assert_eq!(inclusive(0, -1, 1), Some(0));
        assert_eq!(inclusive(0, i128::from(u64::MAX), 1), None);
        assert_eq!(inclusive(1, i128::from(u64::MAX), 1), Some(u64::MAX));
    }

    #[test]
    fn parts_have_the_bounds_that_compiled_code_expects() {
        let bounds = Bounds::of_signed(10, -1, -3).in_chunks(3);
        assert_eq!(bounds.parts(), 2);
        let open = |from, to| bounds.open(Parts { from, to }, -1_i64 as u64);
        assert_eq!(open(0, 1), (10, 1));
        assert_eq!(open(1, 2), (1, -1_i64 as u64));
        let bounds = Bounds::inclusive(0, 9, 1).unwrap().in_chunks(4);
        let closed = |from, to| bounds.closed(Parts { from, to });
        assert_eq!(closed(0, 1), (0, 3, false));
        assert_eq!(closed(1, 3), (4, 9, true));
    }

    #[test]
    fn very_long_loops_have_longer_parts() {
        let all = Bounds::of_unsigned(true, 0, u64::MAX, 1);
        let bounds = all.in_chunks(1);
        assert!(u64::from(bounds.parts()) <= MAX_PARTS);
        let last = bounds.parts();
        let (_, to) = bounds.iterations(Parts {
            from: last - 1,
            to: last,
        });
        assert_eq!(to, u64::MAX);
        assert_eq!(all.in_chunks(u64::MAX).parts(), 1);
        assert_eq!(Bounds::of_signed(0, 100, 1).in_chunks(8).part, 8);
    }
}
