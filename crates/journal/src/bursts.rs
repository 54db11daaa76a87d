//! Burst sampling: the schedule of when accesses are recorded.
//!
//! Time is divided into periods, and a share of each period, the burst, is sampled. Its place in the period follows
//! from a hash of the period's number, so that a program's own rhythm does not always meet the same part of an
//! iteration. The schedule is a function of time alone: with the virtual clock all threads of a process, and all its
//! runs, sample the same stretches of work, and threads joined by a barrier are sampled together. After every
//! [`STAGE`] periods their length doubles. So a long run has long bursts too (communication over a longer distance
//! than a burst is seen only where both ends fall into bursts), while a short run still has enough of them.

/// Number of periods of the same length.
pub const STAGE: u64 = 64;
/// Length of the first bursts in accesses (virtual clock).
pub const FIRST_ACCESSES: u64 = 4096;
/// Length of the first bursts in nanoseconds (wall clock).
pub const FIRST_NS: u64 = 1_000_000;
/// Unit of shares: millionths.
pub const MILLION: u64 = 1_000_000;
/// Most times that a period doubles.
const STAGES: u32 = 24;

/// A schedule of bursts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bursts {
    /// Length of the first bursts.
    burst: u64,
    /// Length of the first periods.
    period: u64,
}

/// The state of the schedule at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    /// Whether accesses are recorded.
    pub sampling: bool,
    /// First instant at which that changes (or may change).
    pub until: u64,
    /// Start of the burst: the current one, or the period's.
    pub burst: u64,
}

impl Bursts {
    /// Samples `share` millionths of the time, in bursts of length `burst` at first; `None` if that is all of it.
    #[must_use]
    pub fn new(share: u32, burst: u64) -> Option<Self> {
        let share = u64::from(share.max(1));
        (share < MILLION).then(|| Self {
            burst,
            period: (burst * MILLION).div_ceil(share),
        })
    }

    /// Samples `share` millionths of the virtual clock's time, or of the wall clock's.
    #[must_use]
    pub fn of_clock(share: u32, virtual_clock: bool) -> Option<Self> {
        let first = if virtual_clock {
            FIRST_ACCESSES
        } else {
            FIRST_NS
        };
        Self::new(share, first)
    }

    /// Start, burst's start, burst's end and end of the `k`-th period of a stage.
    fn period(&self, stage: u32, k: u64) -> [u64; 4] {
        let (burst, period) = (self.burst << stage, self.period << stage);
        let start = self.period * STAGE * ((1 << stage) - 1) + k * period;
        let place = splitmix(u64::from(stage) << 32 | k) % (period - burst + 1);
        let first = start.saturating_add(place);
        [
            start,
            first,
            first.saturating_add(burst),
            start.saturating_add(period),
        ]
    }

    /// The state of the schedule at `time`.
    #[must_use]
    pub fn at(&self, time: u64) -> Watch {
        let stage = (time / (self.period * STAGE) + 1).ilog2().min(STAGES);
        let start = self.period * STAGE * ((1 << stage) - 1);
        let k = (time - start) / (self.period << stage);
        let [_, first, end, next] = self.period(stage, k);
        let (sampling, until) = if time < first {
            (false, first)
        } else if time < end {
            (true, end)
        } else {
            (false, next)
        };
        Watch {
            sampling,
            until,
            burst: first,
        }
    }

    /// All bursts that begin in `from..to`, as (start, length), in time order.
    pub fn between(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        (0..=STAGES)
            .flat_map(|stage| (0..STAGE).map(move |k| (stage, k)))
            .map(|(stage, k)| self.period(stage, k))
            .skip_while(move |period| period[3] <= from)
            .take_while(move |period| period[0] < to)
            .map(|[_, first, end, _]| (first, end - first))
            .filter(move |(first, _)| (from..to).contains(first))
    }
}

/// Sebastiano Vigna's splitmix64: mixes a counter.
fn splitmix(counter: u64) -> u64 {
    let mut z = counter.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_kept_at_every_length() {
        let bursts = Bursts::new(50_000, 4096).unwrap();
        for to in [10_000_000u64, 100_000_000, 1_000_000_000] {
            let watched: u64 = bursts.between(0, to).map(|(_, length)| length).sum();
            let share = watched as f64 / to as f64;
            assert!((share - 0.05).abs() < 0.002, "{share} of {to}");
        }
        assert_eq!(Bursts::new(1_000_000, 4096), None);
    }

    #[test]
    fn walking_the_schedule_meets_the_bursts_listed() {
        let bursts = Bursts::new(200_000, 100).unwrap();
        let (mut now, mut met) = (0, Vec::new());
        while now < 300_000 {
            let watch = bursts.at(now);
            assert!(watch.until > now);
            if watch.sampling {
                assert_eq!(watch.burst, now);
                met.push((now, watch.until - now));
            }
            now = watch.until;
        }
        let listed: Vec<_> = bursts.between(0, 300_000).collect();
        assert_eq!(met[..listed.len()], listed);
        // The first stage's 64 bursts are the shortest, the second's twice as long.
        assert!(listed[..64].iter().all(|burst| burst.1 == 100));
        assert!(listed[64..128].iter().all(|burst| burst.1 == 200));
        // Inside and at the edges.
        let (first, length) = listed[70];
        assert!(bursts.at(first).sampling && bursts.at(first + length - 1).sampling);
        assert!(!bursts.at(first + length).sampling && !bursts.at(first - 1).sampling);
    }
}
