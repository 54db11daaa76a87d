//! The constants of online placement.

use super::detect::Detector;
use crate::dynamic::Dynamics;

/// How many accesses to memory there are for those that are observed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amounts {
    /// Each observed one stands for this many: the period of sampling.
    PerSample(f64),
    /// Observations say who accesses what, not how often: each active thread is assumed to make this many per second.
    PerThreadSecond(f64),
}

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
    /// How many accesses to memory there are.
    pub amounts: Amounts,
    /// Least time between two decisions, in seconds.
    pub decision_s: f64,
    /// Observed accesses from which on the first decision is made.
    pub least_samples: u64,
}

impl Default for Constants {
    /// Windows of 250 ms, four against four: a phase is recognised after one second, OPT's least time between moves. A
    /// million accesses of a thread in a second: one in a thousand cycles, little for a program that placement matters
    /// to.
    fn default() -> Self {
        Self {
            dynamics: Dynamics::default(),
            detector: Detector::default(),
            window_s: 0.25,
            windows: 4,
            half_life_s: 2.0,
            amounts: Amounts::PerThreadSecond(1e6),
            decision_s: 0.5,
            least_samples: 64,
        }
    }
}
