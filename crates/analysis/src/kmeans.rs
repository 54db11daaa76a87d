//! Optimal clusters of weighted points on a line.
//!
//! DeLoc (section II-C, eq. 1) clusters timestamps by weighted k-means: minimise
//! `sum over clusters i, points t of w_t (t - mean_i)²`. We deviate in the method, not in the
//! objective: points on a line have contiguous optimal clusters, so a dynamic programme finds the
//! optimum (Wang and Song 2011, Ckmeans.1d.dp) where Lloyd's iteration finds a local one that depends
//! on its start. The leftmost best split point never moves left as the right end moves right (the
//! cost obeys the concave quadrangle inequality), nor as clusters are added, so each layer is solved by
//! divide and conquer between known bounds: O(n log n) per cluster count instead of O(n²).
//!
//! All cluster counts up to `k_max` come out of one run. Memory: (16 + 4 `k_max`) bytes per point.
//! Numerics: points are shifted to their weighted mean and scaled to a range of 1 before prefix sums
//! are taken, so that nanoseconds squared do not exhaust the 53 bits of an `f64`.

/// Optimal clusterings of the same points for every cluster count from 1.
#[derive(Clone, Debug)]
pub struct Clusterings {
    points: usize,
    /// Optimal cost for 1, 2, ... clusters, in the points' own unit squared.
    pub costs: Vec<f64>,
    /// `split[q][i]`: where the last of q + 1 clusters of points `0..=i` starts.
    split: Vec<Vec<u32>>,
}

struct Prefix {
    weight: Vec<f64>,
    linear: Vec<f64>,
    square: Vec<f64>,
}

impl Prefix {
    /// Cost of one cluster of points `from..=to`.
    #[inline]
    fn cost(&self, from: usize, to: usize) -> f64 {
        let w = self.weight[to + 1] - self.weight[from];
        let s = self.linear[to + 1] - self.linear[from];
        let q = self.square[to + 1] - self.square[from];
        // Rounding may give a tiny negative value; a cost is a sum of squares.
        (q - s * s / w).max(0.0)
    }
}

/// Clusters `points` (strictly ascending) with positive `weights` into 1..=`k_max` clusters.
///
/// # Panics
/// If the lengths differ, points do not ascend, a weight is not positive, or there are 2^32 points.
#[must_use]
pub fn cluster(points: &[f64], weights: &[f64], k_max: usize) -> Clusterings {
    assert_eq!(points.len(), weights.len(), "a weight for every point");
    assert!(
        points.windows(2).all(|w| w[0] < w[1]),
        "points must ascend strictly"
    );
    assert!(weights.iter().all(|&w| w > 0.0), "weights must be positive");
    let n = points.len();
    assert!(u32::try_from(n).is_ok(), "fewer than 2^32 points");
    let k_max = k_max.min(n);
    if k_max == 0 {
        return Clusterings {
            points: n,
            costs: Vec::new(),
            split: Vec::new(),
        };
    }
    let total: f64 = weights.iter().sum();
    let mean = points.iter().zip(weights).map(|(x, w)| x * w).sum::<f64>() / total;
    let range = if n > 1 {
        points[n - 1] - points[0]
    } else {
        1.0
    };
    let prefix = prefix_sums(points, weights, mean, range);

    let mut best: Vec<f64> = (0..n).map(|to| prefix.cost(0, to)).collect();
    let mut costs = vec![best[n - 1] * range * range];
    let mut split = vec![vec![0u32; n]];
    let mut next = vec![0.0; n];
    for q in 1..k_max {
        let mut at = vec![0u32; n];
        // With fewer points than clusters every point is a cluster of its own: cost 0.
        for to in 0..q {
            next[to] = 0.0;
            at[to] = to as u32;
        }
        let mut layer = LayerSolver {
            prefix: &prefix,
            previous: &best,
            lower_bound: &split[q - 1],
            clusters_before: q,
            best: &mut next,
            split: &mut at,
        };
        layer.solve(q, n - 1, q, n - 1);
        std::mem::swap(&mut best, &mut next);
        costs.push(best[n - 1] * range * range);
        split.push(at);
    }
    Clusterings {
        points: n,
        costs,
        split,
    }
}

fn prefix_sums(points: &[f64], weights: &[f64], mean: f64, range: f64) -> Prefix {
    let sums = |term: &dyn Fn(f64, f64) -> f64| {
        let mut sums = Vec::with_capacity(points.len() + 1);
        let mut sum = 0.0;
        sums.push(sum);
        for (&x, &w) in points.iter().zip(weights) {
            sum += term((x - mean) / range, w);
            sums.push(sum);
        }
        sums
    };
    Prefix {
        weight: sums(&|_, w| w),
        linear: sums(&|x, w| w * x),
        square: sums(&|x, w| w * x * x),
    }
}

/// Computes the layer with one more cluster than `previous`.
struct LayerSolver<'a> {
    prefix: &'a Prefix,
    previous: &'a [f64],
    /// Split points with one cluster fewer: a lower bound of ours.
    lower_bound: &'a [u32],
    clusters_before: usize,
    best: &'a mut [f64],
    split: &'a mut [u32],
}

impl LayerSolver<'_> {
    /// Solves the right ends `low..=high`, whose split points lie in `from..=to`.
    fn solve(&mut self, low: usize, high: usize, from: usize, to: usize) {
        let middle = low + (high - low) / 2;
        let first = from
            .max(self.clusters_before)
            .max(self.lower_bound[middle] as usize);
        let last = to.min(middle);
        let (at, cost) = self.best_split(middle, first, last.max(first));
        self.best[middle] = cost;
        self.split[middle] = at as u32;
        if middle > low {
            self.solve(low, middle - 1, from, at);
        }
        if middle < high {
            self.solve(middle + 1, high, at, to);
        }
    }

    /// The leftmost best start in `first..=last` of the last cluster, which ends at `end`.
    fn best_split(&self, end: usize, first: usize, last: usize) -> (usize, f64) {
        let p = self.prefix;
        let (w_end, s_end, q_end) = (p.weight[end + 1], p.linear[end + 1], p.square[end + 1]);
        let weight = &p.weight[first..=last];
        let linear = &p.linear[first..=last];
        let square = &p.square[first..=last];
        let before = &self.previous[first - 1..last];
        let mut best = (first, f64::INFINITY);
        for at in 0..weight.len() {
            let s = s_end - linear[at];
            let within = (q_end - square[at]) - s * s / (w_end - weight[at]);
            let cost = before[at] + within.max(0.0);
            if cost < best.1 {
                best = (first + at, cost);
            }
        }
        best
    }
}

impl Clusterings {
    /// The first point of each of `k` clusters, ascending; the first is 0.
    ///
    /// # Panics
    /// If `k` is 0 or above `k_max`.
    #[must_use]
    pub fn starts(&self, k: usize) -> Vec<usize> {
        let mut starts = vec![0; k];
        let mut end = self.points - 1;
        for q in (1..k).rev() {
            let start = self.split[q][end] as usize;
            starts[q] = start;
            end = start - 1;
        }
        starts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition: weighted squared distance to the weighted mean, cluster by cluster.
    fn cost_of(points: &[f64], weights: &[f64], starts: &[usize]) -> f64 {
        let ends = starts[1..].iter().copied().chain([points.len()]);
        starts
            .iter()
            .zip(ends)
            .map(|(&from, to)| {
                let (x, w) = (&points[from..to], &weights[from..to]);
                let mean = x.iter().zip(w).map(|(x, w)| x * w).sum::<f64>() / w.iter().sum::<f64>();
                x.iter()
                    .zip(w)
                    .map(|(x, w)| w * (x - mean).powi(2))
                    .sum::<f64>()
            })
            .sum()
    }

    fn brute_force(points: &[f64], weights: &[f64], k: usize) -> f64 {
        fn go(x: &[f64], w: &[f64], k: usize, starts: &mut Vec<usize>) -> f64 {
            if starts.len() == k {
                return cost_of(x, w, starts);
            }
            let from = starts.last().unwrap() + 1;
            let last = x.len() - (k - starts.len());
            (from..=last)
                .map(|start| {
                    starts.push(start);
                    let cost = go(x, w, k, starts);
                    starts.pop();
                    cost
                })
                .fold(f64::INFINITY, f64::min)
        }
        go(points, weights, k, &mut vec![0])
    }

    #[test]
    fn two_bursts_by_hand() {
        // {0, 1} and {10, 11, 12}, weights 1, 1, 1, 2, 1. Means 0.5 and 11.
        // Costs: 0.25 + 0.25 = 0.5; 1 + 0 + 1 = 2; together 2.5.
        let clusterings = cluster(&[0., 1., 10., 11., 12.], &[1., 1., 1., 2., 1.], 3);
        assert_eq!(clusterings.starts(2), [0, 2]);
        assert!((clusterings.costs[1] - 2.5).abs() < 1e-12);
    }

    #[test]
    fn nothing_and_one_point() {
        assert!(cluster(&[], &[], 4).costs.is_empty());
        assert_eq!(cluster(&[7.0], &[3.0], 4).costs, [0.0]);
    }

    #[test]
    fn nanosecond_stamps_keep_their_digits() {
        // An epoch in nanoseconds squared needs 122 bits; the spread within bursts is what matters.
        let base = 1.7e18;
        let points: Vec<f64> = (0..100)
            .map(|i| base + f64::from(i / 50) * 1e9 + f64::from(i % 50) * 1024.0)
            .collect();
        let clusterings = cluster(&points, &[1.0; 100], 2);
        assert_eq!(clusterings.starts(2), [0, 50]);
    }

    proptest! {
        #[test]
        fn equals_brute_force(
            steps in proptest::collection::vec((1u8..20, 1u8..9), 1..10),
            k in 1usize..6,
        ) {
            let mut x = 0.0;
            let points: Vec<f64> = steps.iter().map(|s| { x += f64::from(s.0); x }).collect();
            let weights: Vec<f64> = steps.iter().map(|s| f64::from(s.1)).collect();
            let k = k.min(points.len());
            let clusterings = cluster(&points, &weights, k);
            let best = brute_force(&points, &weights, k);
            let starts = clusterings.starts(k);
            prop_assert!((clusterings.costs[k - 1] - best).abs() <= 1e-9 * (1.0 + best));
            prop_assert!((cost_of(&points, &weights, &starts) - best).abs() <= 1e-9 * (1.0 + best));
            prop_assert!(clusterings.costs.windows(2).all(|c| c[1] <= c[0] + 1e-9));
        }
    }
}
