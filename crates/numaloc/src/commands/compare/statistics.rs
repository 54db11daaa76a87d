//! Means, confidence intervals and differences of small samples (Student, Welch).

use numaloc_report::gate::median;

/// Measured values.
#[derive(Clone, Debug, Default)]
pub struct Sample(Vec<f64>);

impl Sample {
    /// Adds a value.
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// In the order they were measured.
    pub fn values(&self) -> &[f64] {
        &self.0
    }

    /// Arithmetic mean; NaN without values.
    pub fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }

    /// The least value; infinite without values.
    pub fn least(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// The greatest value; negative infinity without values.
    pub fn most(&self) -> f64 {
        self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    /// Number of values whose modified z-score, 0.6745 of the distance from the median over the median distance, is
    /// above 3.5 (Iglewicz and Hoaglin, 1993). None where more than half of the values are equal.
    pub fn outliers(&self) -> usize {
        let middle = median(&self.0).unwrap_or(f64::NAN);
        let distances: Vec<f64> = self.0.iter().map(|value| (value - middle).abs()).collect();
        let usual = median(&distances).unwrap_or(0.0);
        let far = |distance: &&f64| usual > 0.0 && 0.6745 * **distance > 3.5 * usual;
        distances.iter().filter(far).count()
    }

    /// Variance of the mean.
    fn error_squared(&self) -> f64 {
        let n = self.0.len() as f64;
        let mean = self.mean();
        let squares: f64 = self.0.iter().map(|value| (value - mean).powi(2)).sum();
        squares / (n - 1.0) / n
    }

    /// Half the width of the 95 % confidence interval of the mean.
    pub fn half_width(&self) -> f64 {
        student_975(self.0.len() as f64 - 1.0) * self.error_squared().sqrt()
    }
}

/// Whether two means differ at the 5 % level (Welch's test, two-sided).
pub fn differ(a: &Sample, b: &Sample) -> bool {
    let (ea, eb) = (a.error_squared(), b.error_squared());
    let spread = ea + eb;
    if spread == 0.0 {
        return a.mean() != b.mean();
    }
    (a.mean() - b.mean()).abs() > student_975(freedom(a, b)) * spread.sqrt()
}

/// Degrees of freedom of the difference of two means (Welch and Satterthwaite).
fn freedom(a: &Sample, b: &Sample) -> f64 {
    let (ea, eb) = (a.error_squared(), b.error_squared());
    let (na, nb) = (a.len() as f64, b.len() as f64);
    (ea + eb).powi(2) / (ea.powi(2) / (na - 1.0) + eb.powi(2) / (nb - 1.0))
}

/// The 97.5 % quantile of Student's t: from the table up to 10 degrees of freedom (linear between), by
/// the Cornish-Fisher expansion above (error below 0.001).
fn student_975(freedom: f64) -> f64 {
    const TABLE: [f64; 10] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    ];
    let freedom = freedom.max(1.0);
    if freedom < 10.0 {
        let at = freedom.floor();
        let (low, high) = (TABLE[at as usize - 1], TABLE[at as usize]);
        return low + (high - low) * (freedom - at);
    }
    let z = 1.959_964_f64;
    let g1 = (z.powi(3) + z) / 4.0;
    let g2 = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let g3 = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + g1 / freedom + g2 / freedom.powi(2) + g3 / freedom.powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (freedom, expected) in [
            (1.0, 12.706),
            (9.0, 2.262),
            (10.0, 2.228),
            (30.0, 2.042),
            (1e6, 1.96),
        ] {
            assert!((student_975(freedom) - expected).abs() < 0.001, "{freedom}");
        }
    }

    #[test]
    fn interval_and_difference_by_hand() {
        // 1 2 3: mean 2, variance 1, error 1/sqrt(3), t(2) = 4.303: half width 2.484.
        let a = Sample(vec![1.0, 2.0, 3.0]);
        assert!((a.half_width() - 2.484).abs() < 0.001);
        let near = Sample(vec![2.0, 3.0, 4.0]);
        let far = Sample(vec![9.0, 10.0, 11.0]);
        assert!(!differ(&a, &near) && differ(&a, &far));
    }

    #[test]
    fn outliers_by_hand() {
        // Median 11, distances 1 0 1 0 1 0.5 9, their median 1: the score of 20 is 6.07, of all others at most 0.67.
        let sample = Sample(vec![10.0, 11.0, 10.0, 11.0, 12.0, 10.5, 20.0]);
        assert_eq!(sample.outliers(), 1);
        assert_eq!((sample.least(), sample.most()), (10.0, 20.0));
        assert_eq!(Sample(vec![1.0, 1.0, 1.0, 5.0]).outliers(), 0);
        assert_eq!(Sample(vec![1.0, 2.0]).outliers(), 0);
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
    }

    #[test]
    fn unequal_spreads_by_hand() {
        // 1 2 3: variance of the mean 1/3; 2 4 6: variance 4, of the mean 4/3. Degrees of freedom
        // (5/3)^2 / ((1/9)/2 + (16/9)/2) = 2.7778 / 0.9444 = 2.9412. t = 2 / sqrt(5/3) = 1.549, below 3.25.
        let a = Sample(vec![1.0, 2.0, 3.0]);
        let b = Sample(vec![2.0, 4.0, 6.0]);
        assert!((freedom(&a, &b) - 2.9412).abs() < 1e-4);
        assert!(!differ(&a, &b) && !differ(&b, &a));
        // 6 8 10: t = 6 / 1.291 = 4.648, above it.
        let c = Sample(vec![6.0, 8.0, 10.0]);
        assert!(differ(&a, &c) && differ(&c, &a));
    }

    #[test]
    fn without_spread_any_difference_counts() {
        let (a, b) = (Sample(vec![2.0; 3]), Sample(vec![2.5; 3]));
        assert!(!differ(&a, &a) && differ(&a, &b));
        assert_eq!(a.half_width(), 0.0);
    }
}
