//! Line sampling: which lines are recorded.
//!
//! A line is sampled, by all threads and all the time, when `number * 2^64/phi mod 2^64` lies below the share. The
//! sample itself is exact: every event of a sampled line is counted, however far its write and its read lie apart.
//! Multiples of the golden ratio spread more evenly than random numbers (three-distance theorem; Knuth, TAOCP 3,
//! section 6.4, theorem S): each stretch of memory has its share of sampled lines, give or take one or two, and so has
//! almost every stride. Estimates are therefore better than those of a random sample. [`GROUPS`] show by how much: the
//! share is cut into equal parts, each a smaller sample of the same kind, and the error follows from how their counts
//! differ.

use crate::line::FAST_SHIFT;

pub use numaloc_journal::GROUPS;

/// The set of sampled lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    /// A line is sampled when its place is at most this.
    last: u64,
    shift: u32,
}

impl Watched {
    /// Distance between the places of neighbouring lines.
    pub const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

    /// Samples `share` millionths of the lines of `1 << shift` bytes.
    #[must_use]
    pub fn new(share: u32, shift: u32) -> Self {
        let last = u128::from(share) * (1 << 64) / 1_000_000;
        Self {
            last: (last.max(1) - 1) as u64,
            shift,
        }
    }

    /// The place of the line of `1 << shift` bytes at `address` on the circle of 2^64 places; the line at address 0
    /// has place 0.
    #[inline(always)]
    #[must_use]
    pub fn place(address: u64, shift: u32) -> u64 {
        (address >> shift).wrapping_mul(Self::STEP)
    }

    /// [`Watched::place`] of a line of the usual size.
    #[inline(always)]
    #[must_use]
    pub fn usual_place(address: u64) -> u64 {
        Self::place(address, FAST_SHIFT)
    }

    /// Distance from the place of a line of the usual size to that of the line `bytes` away, a multiple of the line
    /// size.
    #[inline(always)]
    #[must_use]
    pub fn usual_distance(bytes: i64) -> u64 {
        ((bytes >> FAST_SHIFT) as u64).wrapping_mul(Self::STEP)
    }

    /// The largest place that is sampled.
    #[must_use]
    pub fn last(self) -> u64 {
        self.last
    }

    /// Whether the line at `address` is sampled.
    #[inline(always)]
    #[must_use]
    pub fn has(self, address: u64) -> bool {
        Self::place(address, self.shift) <= self.last
    }

    /// The part of the sample, below [`GROUPS`], to which a sampled line belongs.
    #[must_use]
    pub fn group(self, address: u64) -> usize {
        let part = self.last / GROUPS as u64 + 1;
        (Self::place(address, self.shift) / part) as usize
    }
}

/// Leading bits of a place that index [`Gaps`].
const KNOWN: u32 = 8;

/// Distances from any line of the usual size to the next sampled one, in lines. The table has a lower bound for each
/// range of places, which is mostly exact.
#[derive(Clone, Copy, Debug)]
pub struct Gaps {
    last: u64,
    least: [u16; 1 << KNOWN],
}

impl Gaps {
    /// Largest distance in the table.
    const MOST: u16 = 4096;

    /// The distances between the lines of `watched`.
    #[must_use]
    pub fn new(watched: Watched) -> Self {
        let width = (1u64 << (u64::BITS - KNOWN)) - 1;
        let least = std::array::from_fn(|known| {
            let mut first = (known as u64) << (u64::BITS - KNOWN);
            let mut lines = 0;
            // Stop at a sampled place, or where the range of places wraps around.
            while first > watched.last && first <= u64::MAX - width && lines < Self::MOST {
                first = first.wrapping_add(Watched::STEP);
                lines += 1;
            }
            lines
        });
        Self {
            last: watched.last,
            least,
        }
    }

    /// The first sampled line from `line` on; `end` or more if there is none before `end`.
    #[inline(always)]
    #[must_use]
    pub fn next(&self, mut line: u64, end: u64) -> u64 {
        let mut place = Watched::usual_place(line);
        while place > self.last && line < end {
            let lines = u64::from(self.least[(place >> (u64::BITS - KNOWN)) as usize]).max(1);
            line += lines << FAST_SHIFT;
            place = place.wrapping_add(lines.wrapping_mul(Watched::STEP));
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_miss_no_line() {
        for share in [1, 20, 1_000, 50_000, 333_333, 999_999, 1_000_000] {
            let watched = Watched::new(share, 6);
            let gaps = Gaps::new(watched);
            let (start, end) = (0x7fff_1234_5000, 0x7fff_1334_5000);
            let mut found = Vec::new();
            let mut line = gaps.next(start, end);
            while line < end {
                found.push(line);
                line = gaps.next(line + 64, end);
            }
            let all = (start..end).step_by(64).filter(|&at| watched.has(at));
            assert_eq!(found, all.collect::<Vec<_>>(), "{share}");
        }
    }

    #[test]
    fn a_distance_leads_from_place_to_place_in_both_directions() {
        let from = 0x7fff_1234_5678u64;
        for bytes in [0i64, 64, 6400, -64, -128, -(1 << 40)] {
            let to = Watched::usual_place(from.wrapping_add_signed(bytes));
            let moved = Watched::usual_place(from).wrapping_add(Watched::usual_distance(bytes));
            assert_eq!(moved, to, "{bytes}");
        }
    }

    #[test]
    fn every_stretch_and_stride_has_its_share() {
        let watched = Watched::new(50_000, 6);
        // A stretch has its share up to a line or two; strides of some powers of two need more lines.
        for (start, step, tolerance) in [
            (0x1000u64, 1u64, 2.0),
            (0x7fff_0040, 1, 2.0),
            (0, 64, 3.0),
            (0x100, 20, 3.0),
            (0, 16, 6.0),
            (0, 512, 6.0),
        ] {
            for lines in [64u64, 256, 4096] {
                let count = (0..lines)
                    .filter(|line| watched.has(start + line * step * 64))
                    .count() as f64;
                let expected = lines as f64 * 0.05;
                assert!(
                    (count - expected).abs() <= tolerance,
                    "{count} of {lines}, step {step}"
                );
            }
        }
    }

    #[test]
    fn groups_are_equal_parts() {
        let watched = Watched::new(50_000, 6);
        let mut counts = [0; GROUPS];
        for address in (0..(1 << 24)).step_by(64).filter(|&at| watched.has(at)) {
            counts[watched.group(address)] += 1;
        }
        let each = (1 << 18) as f64 * 0.05 / GROUPS as f64;
        assert!(
            counts.iter().all(|&n| (n as f64 - each).abs() < 5.0),
            "{counts:?}"
        );
    }

    #[test]
    fn the_whole_share_samples_every_line() {
        let all = Watched::new(1_000_000, 6);
        assert!((0..10_000u64).all(|line| all.has(line * 64)));
    }
}
