//! The constants of online placement.

use crate::dynamic::Dynamics;
use crate::online::Detector;

/// The constants of online placement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Constants {
    /// OPT's conditions, and what a move costs: those of planned moves.
    pub dynamics: Dynamics,
    /// How a new phase is recognised.
    pub detector: Detector,
    /// Length of the windows by which phases are recognised, in seconds.
    pub window_s: f64,
    /// Windows that are compared with as many before them.
    pub windows: usize,
    /// Time after which an observation counts half, in seconds.
    pub half_life_s: f64,
    /// Accesses to memory that an observed one stands for: 1 for each of a sampling period; for a page fault, the lines
    /// of a page.
    pub accesses_per_sample: f64,
    /// Least time between two decisions, in seconds.
    pub decision_s: f64,
    /// Observed accesses from which on the first decision is made.
    pub least_samples: u64,
}

impl Default for Constants {
    /// Windows of 250 ms, four against four: a phase is recognised after one second, OPT's least time between moves. A
    /// page fault stands for the 64 lines of a page.
    fn default() -> Self {
        Self {
            dynamics: Dynamics::default(),
            detector: Detector::default(),
            window_s: 0.25,
            windows: 4,
            half_life_s: 2.0,
            accesses_per_sample: 64.0,
            decision_s: 0.5,
            least_samples: 64,
        }
    }
}
