//! Estimates the error of sampled matrix cells.
//!
//! Where lines are sampled, the sample consists of equal parts, and the method of random groups (Wolter, *Introduction
//! to Variance Estimation*, 2nd edition, section 2.2) estimates how much their sum would vary between samples.
//!
//! Where time is sampled, bursts are the sampling units. With `x_b` events of the cell in burst `b` of length `L_b`,
//! and `R = sum x / sum L`, the variance of the sum is that of a ratio estimator (Cochran, *Sampling Techniques*, 3rd
//! edition, section 6.3):
//!
//! `var = (1 - f) * n / (n - 1) * sum (x_b - R L_b)^2`, `f` the share sampled; the relative error is its root over
//! `sum x`.
//!
//! This is the error from the choice of bursts. It does not include what no burst can show: communication whose write
//! and read lie further apart than the length of a burst is counted only if each falls into one.

use std::collections::BTreeMap;

/// Relative standard error of a cell. `bursts` are all (start, length) of the reader's lifetime, `seen` the events by
/// start of their burst, `share` the share of the time that was sampled. 1 if there is only one burst.
pub fn relative(bursts: &[(u64, u64)], seen: &BTreeMap<u64, u64>, share: f64) -> f64 {
    let n = bursts.len().max(seen.len()) as f64;
    let events: f64 = seen.values().map(|&x| x as f64).sum();
    let length: f64 = bursts.iter().map(|burst| burst.1 as f64).sum();
    if n < 2.0 || events == 0.0 || length == 0.0 {
        return 1.0;
    }
    let ratio = events / length;
    let squares: f64 = bursts
        .iter()
        .map(|(first, length)| {
            let x = seen.get(first).map_or(0.0, |&x| x as f64);
            (x - ratio * *length as f64).powi(2)
        })
        .sum();
    ((1.0 - share).max(0.0) * n / (n - 1.0) * squares).sqrt() / events
}

/// Relative standard error of a cell with `counts` events in the parts of the sampled lines, which are `share` of all
/// lines.
pub fn of_groups(counts: &[u64], share: f64) -> f64 {
    let n = counts.len() as f64;
    let events: f64 = counts.iter().map(|&x| x as f64).sum();
    if n < 2.0 || events == 0.0 {
        return 1.0;
    }
    let mean = events / n;
    let squares: f64 = counts.iter().map(|&x| (x as f64 - mean).powi(2)).sum();
    ((1.0 - share).max(0.0) * n / (n - 1.0) * squares).sqrt() / events
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_bursts_give_a_small_error_and_a_single_one_a_large_one() {
        let bursts: Vec<(u64, u64)> = (0..10).map(|b| (b * 100, 5)).collect();
        let even: BTreeMap<u64, u64> = (0..10).map(|b| (b * 100, 7)).collect();
        assert!(relative(&bursts, &even, 0.05) < 1e-9);
        // One burst of ten has all 10 events: mean 1, squares 81 + 9 = 90, var = 0.95 * 10/9 * 90 = 95, root 9.75 of
        // 10.
        let single = BTreeMap::from([(300, 10)]);
        assert!((relative(&bursts, &single, 0.05) - 0.9747).abs() < 1e-4);
        assert_eq!(relative(&bursts[..1], &BTreeMap::from([(0, 7)]), 0.05), 1.0);
    }

    #[test]
    fn groups_that_agree_give_a_small_error() {
        assert!(of_groups(&[5; 16], 0.05) < 1e-9);
        // 4 groups, mean 2, squares 4 + 4: 0.95 * 4/3 * 8 = 10.13, root 3.18 of 8.
        assert!((of_groups(&[0, 2, 2, 4], 0.05) - 0.3979).abs() < 1e-4);
        assert_eq!(of_groups(&[0, 0], 0.05), 1.0);
    }

    #[test]
    fn longer_bursts_with_more_events_add_no_error() {
        let bursts = [(0, 10), (100, 10), (200, 20), (400, 40)];
        let seen = BTreeMap::from([(0, 3), (100, 3), (200, 6), (400, 12)]);
        assert!(relative(&bursts, &seen, 0.1) < 1e-9);
    }
}
