//! Phases by heterogeneity of the communication pattern.
//!
//! Implements OPT (2015) eq. 4: a phase starts at slice `t` when the mean heterogeneity of the last
//! `n` slices differs from that of the `n` before them by at least `diff_min`, relative to the former.
//! The paper uses n = 50 slices of 10 ms and 0.2.
//!
//! Readings: slices without communication have no heterogeneity and are left out of both means (a mean of nothing
//! cannot differ); after a phase has started the next one needs `2 n` slices of its own, otherwise one change would be
//! reported at every slice while the window passes over it. The start reported is `t - n`, the first slice of the
//! window that differed.
//!
//! Cost: O(slices).

use std::ops::Range;

/// Parameters of the phase detection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PhaseRule {
    /// Slices per window.
    pub window: usize,
    /// Least relative difference of the windows' means.
    pub least_difference: f64,
}

impl PhaseRule {
    /// The paper's rule for a run of many slices; the window shrinks to an eighth of a short run.
    #[must_use]
    pub fn for_slices(slices: usize) -> Self {
        Self {
            window: 50.min(slices / 8).max(1),
            least_difference: 0.2,
        }
    }
}

/// The phases of a run as ranges of slices: they cover it, in order.
///
/// # Panics
/// If the window is 0.
#[must_use]
pub fn phases(heterogeneity: &[Option<f64>], rule: PhaseRule) -> Vec<Range<usize>> {
    let n = rule.window;
    assert!(n > 0, "a window has a slice");
    let slices = heterogeneity.len();
    if slices == 0 {
        return Vec::new();
    }
    // Prefix sums of values and of their counts.
    let mut sums = vec![(0.0, 0usize)];
    for value in heterogeneity {
        let (sum, count) = *sums.last().expect("starts with one");
        sums.push((
            sum + value.unwrap_or(0.0),
            count + usize::from(value.is_some()),
        ));
    }
    let mean = |from: usize, to: usize| {
        let count = sums[to].1 - sums[from].1;
        (count > 0).then(|| (sums[to].0 - sums[from].0) / count as f64)
    };
    let mut starts = vec![0];
    let mut t = 2 * n;
    while t <= slices {
        if let (Some(now), Some(before)) = (mean(t - n, t), mean(t - 2 * n, t - n)) {
            let changed = if now == 0.0 {
                before > 0.0
            } else {
                (now - before).abs() / now >= rule.least_difference
            };
            if changed {
                starts.push(t - n);
                t += n;
                continue;
            }
        }
        t += 1;
    }
    let ends = starts[1..].iter().copied().chain([slices]);
    starts
        .iter()
        .copied()
        .zip(ends)
        .map(|(s, e)| s..e)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_step_is_one_change() {
        // 20 slices of 100, then 20 of 150; windows of 5: the windows first differ by 0.2 when the
        // later holds two slices of 150: (3·100 + 2·150)/5 = 120, (120 - 100)/120 = 0.167 < 0.2;
        // three: 130, 0.23 >= 0.2: t = 23, start t - 5 = 18. The next test is at t = 28: windows
        // 18..23 and 23..28, means 130 and 150, 20/150 = 0.13: no change.
        let line: Vec<Option<f64>> = (0..40)
            .map(|s| Some(if s < 20 { 100.0 } else { 150.0 }))
            .collect();
        let rule = PhaseRule {
            window: 5,
            least_difference: 0.2,
        };
        assert_eq!(phases(&line, rule), [0..18, 18..40]);
    }

    #[test]
    fn silence_and_constancy_are_one_phase() {
        let rule = PhaseRule::for_slices(100);
        assert_eq!(phases(&[None; 100], rule), vec![0..100]);
        assert_eq!(phases(&[Some(7.0); 100], rule), vec![0..100]);
        assert!(phases(&[], rule).is_empty());
    }

    proptest! {
        #[test]
        fn phases_cover_the_run_are_long_enough_and_independent_of_scale(
            line in proptest::collection::vec(proptest::option::of(0u32..2500), 1..200),
            window in 1usize..20,
        ) {
            let line: Vec<Option<f64>> = line.into_iter().map(|v| v.map(f64::from)).collect();
            let rule = PhaseRule { window, least_difference: 0.2 };
            let found = phases(&line, rule);
            prop_assert_eq!((found[0].start, found[found.len() - 1].end), (0, line.len()));
            prop_assert!(found.windows(2).all(|w| w[0].end == w[1].start && w[0].len() >= window));
            let half: Vec<Option<f64>> = line.iter().map(|v| v.map(|v| v / 2.0)).collect();
            prop_assert_eq!(phases(&half, rule), found);
        }
    }
}
