//! The smooth stand-in for a maximum: the 16-norm of loads, kept up to date as they change.

/// Loads whose 16-norm is kept up to date.
pub(super) struct Norm {
    /// Seconds each.
    load: Vec<f64>,
    /// `(load / scale)^16` each, and their sum.
    term: Vec<f64>,
    sum: f64,
    scale: f64,
}

const POWER: i32 = 16;

impl Norm {
    pub(super) fn new(size: usize, scale: f64) -> Self {
        Self {
            load: vec![0.0; size],
            term: vec![0.0; size],
            sum: 0.0,
            scale: if scale > 0.0 { scale } else { 1.0 },
        }
    }

    pub(super) fn clear(&mut self) {
        self.load.fill(0.0);
        self.term.fill(0.0);
        self.sum = 0.0;
    }

    pub(super) fn add(&mut self, at: usize, seconds: f64) {
        self.load[at] += seconds;
        let term = self.term_of(self.load[at]);
        self.sum += term - self.term[at];
        self.term[at] = term;
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
        self.of_sum(self.sum - self.term[at] + term)
    }

    /// The norm if these changes were made.
    pub(super) fn value_with(&self, changes: &Changes) -> f64 {
        let mut sum = self.sum;
        for &at in &changes.touched {
            sum += self.term_of(self.load[at] + changes.more[at]) - self.term[at];
        }
        self.of_sum(sum)
    }

    /// What these loads add to the sum below the root.
    pub(super) fn part(&self, loads: &[usize]) -> f64 {
        loads.iter().map(|&at| self.term[at]).sum()
    }

    /// The norm if loads of this [`Self::part`] were gone.
    pub(super) fn value_without(&self, part: f64) -> f64 {
        self.of_sum(self.sum - part)
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
