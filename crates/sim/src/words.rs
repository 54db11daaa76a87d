//! Synchronisation words: when their releases happened, and which threads wait for them.
//!
//! A thread whose acquire needs a number of releases continues when that many have happened, in the order of their
//! times: those that another PU, whose clock is ahead, has performed behind them do not delay it.

/// Times that are kept of each word; older releases are taken for as late as the oldest of these.
const KEPT: usize = 8;

/// A synchronisation word.
#[derive(Clone, Debug, Default)]
pub(crate) struct Word {
    releases: u32,
    /// Times of the latest releases, ascending; the last places are filled first.
    latest: [u64; KEPT],
    /// Waiting threads, each with the number of releases it waits for.
    waiting: Vec<(u32, u32)>,
}

impl Word {
    /// Records a release at `now`.
    pub(crate) fn release(&mut self, now: u64) {
        self.releases += 1;
        let at = self.latest.partition_point(|&time| time <= now);
        if let Some(last) = at.checked_sub(1) {
            self.latest.copy_within(1..at, 0);
            self.latest[last] = now;
        }
    }

    /// When `needed` releases had happened, at least one; `None` if they have not yet.
    pub(crate) fn happened(&self, needed: u32) -> Option<u64> {
        let behind = self.releases.checked_sub(needed)? as usize;
        Some(self.latest[KEPT - 1 - behind.min(KEPT - 1)])
    }

    /// Makes a thread wait until `needed` releases have happened.
    pub(crate) fn wait(&mut self, needed: u32, thread: u32) {
        self.waiting.push((needed, thread));
    }

    /// A waiting thread whose releases have happened, and when; it no longer waits.
    pub(crate) fn freed(&mut self) -> Option<(u32, u64)> {
        let at = self
            .waiting
            .iter()
            .position(|&(needed, _)| needed <= self.releases)?;
        let (needed, thread) = self.waiting.remove(at);
        Some((thread, self.happened(needed)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_count_in_the_order_of_their_times() {
        let mut word = Word::default();
        for (releases, time) in [(1, 900), (2, 950), (3, 500)] {
            assert_eq!(word.happened(releases), None);
            word.release(time);
        }
        assert_eq!(word.happened(1), Some(500));
        assert_eq!(word.happened(2), Some(900));
        assert_eq!(word.happened(3), Some(950));
    }

    #[test]
    fn releases_that_are_no_longer_kept_are_as_late_as_the_oldest() {
        let mut word = Word::default();
        (1..=20).for_each(|at| word.release(10 * at));
        assert_eq!(word.happened(20), Some(200));
        assert_eq!(word.happened(13), Some(130));
        assert_eq!(word.happened(1), Some(130));
        word.release(5);
        assert_eq!(word.happened(21), Some(200));
    }

    #[test]
    fn threads_continue_when_their_releases_have_happened() {
        let mut word = Word::default();
        word.wait(2, 7);
        word.wait(1, 8);
        word.release(100);
        assert_eq!(word.freed(), Some((8, 100)));
        assert_eq!(word.freed(), None);
        word.release(90);
        assert_eq!(word.freed(), Some((7, 100)));
    }
}
