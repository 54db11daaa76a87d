//! A smooth approximation of the maximum: the 16-norm of loads, updated incrementally.
//!
//! A load half as large as another contributes 2^-16 of the other's term to the sum below the root. When large terms
//! are removed from a running sum, the remainder is rounding error, which the 16th root turns into 10 % of the large
//! load; so a small remainder is summed again from its terms.

/// Loads and their 16-norm, updated incrementally.
pub(super) struct Norm {
    /// Each load in seconds.
    load: Vec<f64>,
    /// `(load / scale)^16` of each load, and their sum.
    term: Vec<f64>,
    sum: f64,
    /// Largest value of the sum since all terms were last added up; rounding errors are proportional to it.
    peak: f64,
    scale: f64,
}

/// A sum below this share of its peak is added up again.
const RECOUNT_BELOW: f64 = 1e-6;

const POWER: i32 = 16;

impl Norm {
    pub(super) fn new(size: usize, scale: f64) -> Self {
        Self {
            load: vec![0.0; size],
            term: vec![0.0; size],
            sum: 0.0,
            peak: 0.0,
            scale: if scale > 0.0 { scale } else { 1.0 },
        }
    }

    pub(super) fn clear(&mut self) {
        self.load.fill(0.0);
        self.term.fill(0.0);
        self.sum = 0.0;
        self.peak = 0.0;
    }

    pub(super) fn add(&mut self, at: usize, seconds: f64) {
        self.load[at] += seconds;
        let term = self.term_of(self.load[at]);
        self.sum += term - self.term[at];
        self.term[at] = term;
        self.peak = self.peak.max(self.sum);
        if self.sum < RECOUNT_BELOW * self.peak {
            self.sum = self.term.iter().sum();
            self.peak = self.sum;
        }
    }

    pub(super) fn value(&self) -> f64 {
        self.of_sum(self.sum)
    }

    fn term_of(&self, load: f64) -> f64 {
        (load / self.scale).powi(POWER)
    }

    fn of_sum(&self, sum: f64) -> f64 {
        self.scale * sum.max(0.0).powf(1.0 / f64::from(POWER))
    }

    /// The norm if one load grew by `seconds`.
    pub(super) fn value_if(&self, at: usize, seconds: f64) -> f64 {
        let term = self.term_of(self.load[at] + seconds);
        self.of_sum(self.without(self.term[at], |other| other == at) + term)
    }

    /// The norm with these changes applied.
    pub(super) fn value_with(&self, changes: &Changes) -> f64 {
        let (mut gone, mut new) = (0.0, 0.0);
        for &at in &changes.touched {
            gone += self.term[at];
            new += self.term_of(self.load[at] + changes.more[at]);
        }
        self.of_sum(self.without(gone, |at| changes.is_touched[at]) + new)
    }

    /// The sum without terms that add up to `gone`.
    fn without(&self, gone: f64, is_gone: impl Fn(usize) -> bool) -> f64 {
        let rest = self.sum - gone;
        if rest >= RECOUNT_BELOW * self.peak {
            return rest;
        }
        let rest = self.term.iter().enumerate().filter(|(at, _)| !is_gone(*at));
        rest.map(|(_, term)| term).sum()
    }

    /// The contribution of these loads to the sum below the root.
    pub(super) fn part(&self, loads: &[usize]) -> f64 {
        loads.iter().map(|&at| self.term[at]).sum()
    }

    /// A lower bound of the norm without loads of this [`Self::part`].
    pub(super) fn least_without(&self, part: f64) -> f64 {
        let rest = self.sum - part;
        self.of_sum(if rest < RECOUNT_BELOW * self.peak {
            0.0
        } else {
            rest
        })
    }

    pub(super) fn apply(&mut self, changes: &Changes) {
        for &at in &changes.touched {
            self.add(at, changes.more[at]);
        }
    }
}

/// Changes of loads in seconds; most are zero.
pub(super) struct Changes {
    more: Vec<f64>,
    touched: Vec<usize>,
    is_touched: Vec<bool>,
}

impl Changes {
    pub(super) fn new(size: usize) -> Self {
        Self {
            more: vec![0.0; size],
            touched: Vec::new(),
            is_touched: vec![false; size],
        }
    }

    pub(super) fn clear(&mut self) {
        for at in self.touched.drain(..) {
            self.more[at] = 0.0;
            self.is_touched[at] = false;
        }
    }

    pub(super) fn add(&mut self, at: usize, seconds: f64) {
        if !self.is_touched[at] {
            self.is_touched[at] = true;
            self.touched.push(at);
        }
        self.more[at] += seconds;
    }
}
