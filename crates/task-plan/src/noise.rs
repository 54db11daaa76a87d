//! Robust figures from noisy measurements, so that profiles that differ by noise lead to the same plan.

/// Factor by which measurements must contradict an expectation to count.
pub const CONTRADICTION_FACTOR: f64 = 8.0;

/// The power of eight nearest to a ratio; 1 within a factor of eight either way.
pub fn rounded(ratio: f64) -> f64 {
    if !(ratio > CONTRADICTION_FACTOR || ratio < CONTRADICTION_FACTOR.recip()) {
        return 1.0;
    }
    let power = (ratio.max(1e-9).ln() / CONTRADICTION_FACTOR.ln()).round();
    CONTRADICTION_FACTOR.powf(power.clamp(-3.0, 3.0))
}

/// The median of weighted values.
pub fn median(mut values: Vec<(f64, u64)>) -> Option<f64> {
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    let half = values.iter().map(|value| value.1).sum::<u64>() / 2;
    let mut seen = 0;
    let found = values.iter().find(|value| {
        seen += value.1;
        seen > half
    });
    found.map(|value| value.0)
}
