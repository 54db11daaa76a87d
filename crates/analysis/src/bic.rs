//! The number of clusters: the Bayesian information criterion by which DeLoc (section II-C) chooses `k`.
//!
//! The paper does not give its BIC formula (it cites Schwarz 1978 and X-means). Ours, with clusters `c`
//! of weight `W_c` (`W` in all) over `n` distinct timestamps, to which the weights are rescaled to add up:
//!
//! ```text
//! BIC(k)  = sum over t of w_t ln( sum over c of W_c/W p_c(t) ) - (k - 1 + sum over c of q_c)/2 ln n
//! p_c     = bell:        Normal(m_c, s_c²)                             q_c = 2
//!           box:         even over c's slices                          q_c = 2
//!           raised box:  even over the shortest time that holds most of c,
//!                        even and lower over the rest of it            q_c = 5
//! s_c²    = (weighted squared deviations in c) / W_c + d²/12,   d = mean length of a slice
//! ```
//!
//! - A cluster takes the shape with the best value after the price of its parameters. Bells alone (the usual mixture of
//!   Gaussians) describe steady communication badly, and split it, and every steady stretch between pauses, into as
//!   many clusters as the number of slices pays for. With boxes, the number of bursts is found for any length of slices
//!   and any number of pairs, with and without background communication between the bursts
//!   (`known_numbers_of_bursts_are_found_at_any_resolution`). DeLoc's Fig. 3 cuts a steady run (LU) into several
//!   clusters; here it is one, because all of it communicates at the same rate.
//! - `n` counts timestamps, not events or pairs: the pairs of one slice are not independent (programs communicate in
//!   steps), and BIC is not scale-free in the weights: with event counts the penalty would be a rounding error and `k`
//!   always the largest allowed.
//! - `d²/12` is the variance of a time that is only known to lie in a slice; it keeps clusters of one slice from having
//!   an infinite likelihood.
//! - Only a point's own cluster and the two on either side are summed: others are at least
//!   a whole cluster away. Beyond 16,384 timestamps the likelihood (not the clustering) is taken at the
//!   means of that many runs of neighbours.
//!
//! Cost: O(min(timestamps, 16,384)).

/// Largest number of timestamps for the likelihood.
const LIKELIHOOD_POINTS: usize = 1 << 14;

pub(crate) fn weighted_mean(points: &[f64], weights: &[f64], total: f64) -> f64 {
    let base = points[0];
    base + points
        .iter()
        .zip(weights)
        .map(|(x, w)| (x - base) * w)
        .sum::<f64>()
        / total
}

/// Shares of a box's weight tried for its core; the rest is background over the whole cluster.
const CORES: [f64; 8] = [0.999, 0.995, 0.99, 0.98, 0.95, 0.9, 0.8, 0.6];
/// Number of points at which the core of a box is searched.
const BOX_POINTS: usize = 2048;

/// Distribution of the times of one cluster: the best description for its number of parameters.
#[derive(Clone, Copy)]
enum Shape {
    /// A burst that rises and falls.
    Bell { mean: f64, factor: f64, peak: f64 },
    /// Steady communication within `core`, less of it within `hull`.
    Box {
        core: (f64, f64),
        high: f64,
        hull: (f64, f64),
        low: f64,
    },
}

impl Shape {
    /// The best shape of points `x` with weights `w` that hold `share` of all `n` observations, and its number of
    /// parameters.
    fn of(x: &[f64], w: &[f64], share: f64, quantum: f64, n: f64) -> (Self, usize) {
        let weight: f64 = w.iter().sum();
        let mean = weighted_mean(x, w, weight);
        let squares: f64 = x.iter().zip(w).map(|(x, w)| w * (x - mean).powi(2)).sum();
        let floor = (quantum * quantum / 12.0).max(f64::MIN_POSITIVE);
        let variance = squares / weight + floor;
        let scale = std::f64::consts::TAU * variance;
        let bell = Self::Bell {
            mean,
            factor: -0.5 / variance,
            peak: share / scale.sqrt(),
        };
        // Log-likelihood of the cluster's observations less the price of the parameters.
        let worth = |mean_log: f64, parameters: usize| {
            share * n * mean_log - parameters as f64 / 2.0 * n.ln()
        };
        let mut best = (bell, 2);
        let mut most = worth(-0.5 * scale.ln() - squares / weight / (2.0 * variance), 2);
        let (x, w) = thinned(x, w);
        let extent = |from: usize, to: usize| (x[from] - quantum / 2.0, x[to] + quantum / 2.0);
        let width = |(from, to): (f64, f64)| (to - from).max(f64::MIN_POSITIVE);
        let hull = extent(0, x.len() - 1);
        let plain = worth(-width(hull).ln(), 2);
        if plain >= most {
            let high = share / width(hull);
            let whole = Self::Box {
                core: hull,
                high,
                hull,
                low: high,
            };
            (best, most) = ((whole, 2), plain);
        }
        for least in CORES {
            let (first, last, held) = shortest(&x, &w, least * weight);
            let (core, mass) = (extent(first, last), held / weight);
            let outside = width(hull) - width(core);
            if outside <= 0.0 || mass >= 1.0 {
                continue;
            }
            let (high, low) = (mass / width(core), (1.0 - mass) / outside);
            let value = worth(mass * high.ln() + (1.0 - mass) * low.ln(), 5);
            if value > most {
                let raised = Self::Box {
                    core,
                    high: share * high,
                    hull,
                    low: share * low,
                };
                (best, most) = ((raised, 5), value);
            }
        }
        best
    }

    fn density(self, x: f64) -> f64 {
        let within = |(from, to): (f64, f64)| (from..=to).contains(&x);
        match self {
            Self::Bell { mean, factor, peak } => peak * (factor * (x - mean).powi(2)).exp(),
            Self::Box { core, high, .. } if within(core) => high,
            Self::Box { hull, low, .. } if within(hull) => low,
            Self::Box { .. } => 0.0,
        }
    }
}

/// Neighbours merged into at most [`BOX_POINTS`] points; first and last stay where they are.
fn thinned(x: &[f64], w: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let step = x.len().div_ceil(BOX_POINTS);
    let weights = w.chunks(step).map(|w| w.iter().sum()).collect();
    let mut points: Vec<f64> = x.chunks(step).map(|x| x[0]).collect();
    if let (Some(end), Some(&last)) = (points.last_mut(), x.last()) {
        *end = last;
    }
    (points, weights)
}

/// The run of points that holds at least `least` of the weight in the shortest time: first, last, weight.
fn shortest(x: &[f64], w: &[f64], least: f64) -> (usize, usize, f64) {
    let mut best = (0, x.len() - 1, w.iter().sum());
    let (mut from, mut held) = (0, 0.0);
    for to in 0..x.len() {
        held += w[to];
        while from < to && held - w[from] >= least {
            held -= w[from];
            from += 1;
        }
        if held >= least && x[to] - x[from] < x[best.1] - x[best.0] {
            best = (from, to, held);
        }
    }
    best
}

/// BIC of the clusters of ascending `points` that start at the indexes `starts`; larger is better.
///
/// `quantum` is the resolution of a point, in the points' unit.
#[must_use]
pub fn bic(points: &[f64], weights: &[f64], starts: &[usize], quantum: f64) -> f64 {
    let (n, k) = (points.len(), starts.len());
    let total: f64 = weights.iter().sum();
    let shapes: Vec<(Shape, usize)> = (0..k)
        .map(|c| {
            let to = starts.get(c + 1).copied().unwrap_or(n);
            let (x, w) = (&points[starts[c]..to], &weights[starts[c]..to]);
            Shape::of(x, w, w.iter().sum::<f64>() / total, quantum, n as f64)
        })
        .collect();
    let step = n.div_ceil(LIKELIHOOD_POINTS);
    let mut own = 0;
    let mut log_likelihood = 0.0;
    for from in (0..n).step_by(step) {
        let to = (from + step).min(n);
        let weight: f64 = weights[from..to].iter().sum();
        let x = weighted_mean(&points[from..to], &weights[from..to], weight);
        while own + 1 < k && starts[own + 1] <= from {
            own += 1;
        }
        let near = own.saturating_sub(2)..(own + 3).min(k);
        let density: f64 = shapes[near].iter().map(|(shape, _)| shape.density(x)).sum();
        log_likelihood += weight / total * n as f64 * density.max(f64::MIN_POSITIVE).ln();
    }
    let parameters = k - 1 + shapes.iter().map(|(_, own)| own).sum::<usize>();
    log_likelihood - parameters as f64 / 2.0 * (n as f64).ln()
}

#[cfg(test)]
mod tests {
    use crate::concurrency_groups;
    use crate::timeline::tests::profile_of;
    use numaloc_model::{Layer, Profile};

    /// Communication `at` a time (0..60) of each of `k` rounds, by `pairs` pairs, in `fine` slices a unit.
    fn rounds(k: u32, pairs: u32, fine: u32, at: impl Fn(f64) -> u64) -> Profile {
        let mut rows = Vec::new();
        for slice in 0..k * 60 * fine {
            let events = at(f64::from(slice % (60 * fine)) / f64::from(fine));
            if events > 0 {
                rows.extend((0..pairs).map(|p| (slice, 2 * p, 2 * p + 1, events)));
            }
        }
        profile_of(2 * pairs as usize, u64::from(k * 60 * fine), &rows)
    }

    #[test]
    fn known_numbers_of_bursts_are_found_at_any_resolution() {
        let bell = |t: f64| (2000.0 * (-((t - 30.0) / 6.0).powi(2) / 2.0).exp()) as u64;
        let stretch = |t: f64| if t < 30.0 { 10 } else { 0 };
        let murmur = |t: f64| if t < 30.0 { 50 } else { 1 };
        for (pairs, fine) in [(1, 1), (1, 8), (32, 1), (32, 4)] {
            for k in 1..=4 {
                let found = |p| concurrency_groups(&p, Layer::WriteRead).k as u32;
                assert_eq!(found(rounds(k, pairs, fine, bell)), k, "{pairs} {fine}");
                assert_eq!(found(rounds(k, pairs, fine, stretch)), k, "{pairs} {fine}");
                assert_eq!(found(rounds(k, pairs, fine, murmur)), k, "{pairs} {fine}");
                assert_eq!(found(rounds(k, pairs, fine, |_| 10)), 1, "{pairs} {fine}");
            }
        }
    }

    #[test]
    fn amounts_that_vary_from_slice_to_slice_are_one_cluster() {
        // Every pair does the same in a slice, 1 to 100 events by a fixed shuffle: steps of a program.
        for pairs in [1, 32] {
            let events = |t: f64| 1 + (t * 4.0) as u64 * 7919 % 100;
            let found = concurrency_groups(&rounds(3, pairs, 4, events), Layer::WriteRead);
            assert_eq!(found.k, 1, "{:?}", found.bic);
        }
    }
}
