//! Sampling: which accesses of a thread are only counted.

use super::ThreadTracer;
use crate::line::FAST_SHIFT;
use crate::watch::Watched;

/// Which accesses are recorded: those to sampled lines, within bursts.
pub(super) struct Sampler {
    /// Sampling threshold: accesses to lines with a larger `place` ([`Watched::place`]) are only counted. 0 between
    /// bursts, `u64::MAX` when all lines are recorded.
    pub threshold: u64,
    /// Lines are sampled: only those in `watched` are recorded.
    pub partial: bool,
    /// The sampled lines.
    pub watched: Watched,
    /// [`super::fast::Fast::threshold`] for sampled lines while nothing is pending.
    pub usual_threshold: u64,
    /// Accesses to sampled lines, where lines are sampled.
    pub sampled: u64,
    /// Accesses before this quantum that fell into bursts.
    pub seen: u64,
    /// Start of the current burst, where time is sampled.
    pub burst: u64,
    /// Accesses of the quantum that are held back: see [`ThreadTracer::hold_back`].
    pub held: u64,
}

impl Sampler {
    /// Offset of `threshold`, for generated code.
    pub const THRESHOLD: usize = std::mem::offset_of!(Sampler, threshold);

    /// A sampler that records the accesses to `watched` lines, or with `None` to all lines of `1 << line_shift` bytes.
    pub fn new(watched: Option<Watched>, line_shift: u32) -> Self {
        Self {
            threshold: u64::MAX,
            partial: watched.is_some(),
            watched: watched.unwrap_or(Watched::new(1_000_000, line_shift)),
            usual_threshold: u64::MAX,
            sampled: 0,
            seen: 0,
            burst: 0,
            held: 0,
        }
    }

    /// Turns sampling on (records accesses to sampled lines, or to all lines) or off (only counts accesses).
    pub fn set(&mut self, on: bool, line_shift: u32) {
        self.threshold = match on {
            false => 0,
            // `skips` computes places for lines of the usual size only.
            true if line_shift != FAST_SHIFT => u64::MAX,
            true => self.watched.last(),
        };
    }

    /// Whether sampling is off: the time is between two bursts.
    #[inline(always)]
    pub fn paused(&self) -> bool {
        self.threshold == 0
    }

    /// Whether accesses to `address` are only counted.
    #[inline(always)]
    pub fn skips(&self, address: u64) -> bool {
        self.paused() || self.partial && !self.watched.has(address)
    }
}

impl ThreadTracer {
    /// [`ThreadTracer::fast`] for a sampled line.
    #[inline(always)]
    pub fn fast_sampled<const WRITE: bool>(&mut self, address: u64, size: u32) -> bool {
        let threshold = self.sampler.usual_threshold;
        let handled = self.fast_above::<WRITE, false>(threshold, address, size);
        self.sampler.sampled += u64::from(handled);
        handled
    }

    /// [`ThreadTracer::fast_update`] for a sampled line.
    #[inline(always)]
    pub fn fast_sampled_update(&mut self, address: u64, size: u32) -> bool {
        let handled = self.fast_update_above::<false>(self.sampler.usual_threshold, address, size);
        self.sampler.sampled += 2 * u64::from(handled);
        handled
    }

    /// Chooses between the fast path ([`ThreadTracer::fast`]) and the slow one for every access.
    pub(super) fn choose_path(&mut self) {
        let all = self.extra.is_none() && self.stream.is_none() && !self.engine.config.consecutive;
        let short = all && !self.sampler.paused() && self.lines.shift() == FAST_SHIFT;
        self.sampler.usual_threshold = if short { 1 } else { u64::MAX };
        if !self.batch.pending {
            self.reset_threshold();
        }
    }

    /// Sets the threshold of the fast path for nothing pending. Where lines are sampled, each access must be checked
    /// first.
    pub(super) fn reset_threshold(&mut self) {
        self.fast.threshold = match self.sampler.partial {
            true => u64::MAX,
            false => self.sampler.usual_threshold,
        };
    }

    /// Turns sampling on or off.
    pub(super) fn set_sampling(&mut self, on: bool) {
        self.sampler.set(on, self.lines.shift());
        self.choose_path();
    }

    /// Counts `accesses` and returns true if sampling is off and the quantum does not end with them.
    #[inline(always)]
    pub(super) fn skip_paused(&mut self, accesses: u64) -> bool {
        let skips = self.sampler.paused() && self.fast.remaining > accesses;
        if skips {
            self.fast.remaining -= accesses;
        }
        skips
    }

    /// Counts an access to `address` and returns true if its line is not sampled and the quantum does not end with it.
    #[inline(always)]
    pub(super) fn skip(&mut self, address: u64) -> bool {
        let place = Watched::usual_place(address);
        let started = self.first_store != 0 || !self.sampler.partial;
        let skips = self.fast.remaining > 1 && place > self.sampler.threshold && started;
        if skips {
            self.fast.remaining -= 1;
        }
        skips
    }

    /// The sampling threshold, for frontends that count skipped accesses themselves: those to lines with a larger
    /// [`Watched::usual_place`]. `None` where all accesses must be recorded.
    #[inline(always)]
    #[must_use]
    pub fn sample_threshold(&self) -> Option<u64> {
        (self.sampler.threshold != u64::MAX).then_some(self.sampler.threshold)
    }

    /// Accesses remaining in the quantum; such a frontend may count all but one of them.
    #[inline(always)]
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.fast.remaining
    }

    /// Applies the count of such a frontend: `remaining` accesses are left in the quantum.
    #[inline(always)]
    pub fn skipped(&mut self, remaining: u64) {
        self.fast.remaining = remaining;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_sampling_no_access_is_skipped() {
        let mut sampler = Sampler::new(None, 6);
        sampler.set(true, 6);
        assert!(!sampler.partial && !sampler.paused());
        assert!((0..1000u64).all(|line| !sampler.skips(line * 64)));
        assert_eq!(sampler.threshold, u64::MAX);
    }

    #[test]
    fn between_bursts_every_access_is_skipped() {
        let mut sampler = Sampler::new(None, 6);
        sampler.set(false, 6);
        assert!(sampler.paused() && sampler.skips(0) && sampler.skips(64));
    }

    #[test]
    fn accesses_to_lines_that_are_not_sampled_are_skipped() {
        let watched = Watched::new(50_000, 6);
        let mut sampler = Sampler::new(Some(watched), 6);
        sampler.set(true, 6);
        for line in 0..1000u64 {
            assert_eq!(sampler.skips(line * 64 + 5), !watched.has(line * 64));
            // The threshold says the same to frontends that skip accesses themselves.
            let above = Watched::usual_place(line * 64) > sampler.threshold;
            assert_eq!(above, !watched.has(line * 64));
        }
    }

    #[test]
    fn with_lines_of_another_size_frontends_skip_nothing_themselves() {
        let mut sampler = Sampler::new(Some(Watched::new(50_000, 7)), 7);
        sampler.set(true, 7);
        assert_eq!(sampler.threshold, u64::MAX);
        assert!((0..100u64).any(|line| sampler.skips(line * 128)));
    }
}
