//! The smooth stand-in for a maximum: the 16-norm of loads, kept up to date as they change.
//!
//! A load half as large as another adds 2^-16 of what the other adds to the sum below the root. Where the large ones go, what is
//! left of a running sum is rounding error, and the root of the 16th degree makes 10 % of the large load of it; so what is left is summed anew
//! wherever little is.

/// Loads whose 16-norm is kept up to date.
pub(super) struct Norm {
    /// Seconds each.
    load: Vec<f64>,
    /// `(load / scale)^16` each, and their sum.
    term: Vec<f64>,
    sum: f64,
    /// The largest that the sum was since all terms were added up: its rounding errors are in proportion to that.
    peak: f64,
    scale: f64,
}

/// Below this part of what was in it, a sum is added up again.
const LITTLE: f64 = 1e-6;

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
        if self.sum < LITTLE * self.peak {
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

    /// The norm if one load grew.
    pub(super) fn value_if(&self, at: usize, seconds: f64) -> f64 {
        let term = self.term_of(self.load[at] + seconds);
        self.of_sum(self.without(self.term[at], |other| other == at) + term)
    }

    /// The norm if these changes were made.
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
        if rest >= LITTLE * self.peak {
            return rest;
        }
        let rest = self.term.iter().enumerate().filter(|(at, _)| !is_gone(*at));
        rest.map(|(_, term)| term).sum()
    }

    /// What these loads add to the sum below the root.
    pub(super) fn part(&self, loads: &[usize]) -> f64 {
        loads.iter().map(|&at| self.term[at]).sum()
    }

    /// At most the norm if loads of this [`Self::part`] were gone.
    pub(super) fn least_without(&self, part: f64) -> f64 {
        let rest = self.sum - part;
        self.of_sum(if rest < LITTLE * self.peak { 0.0 } else { rest })
    }

    pub(super) fn apply(&mut self, changes: &Changes) {
        for &at in &changes.touched {
            self.add(at, changes.more[at]);
        }
    }
}

/// Seconds that loads would change by; most do not.
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
