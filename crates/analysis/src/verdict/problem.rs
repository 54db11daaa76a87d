//! A problem: what is wrong, where, what to do and what that gives.

use super::{Likelihood, Measure};

/// Something that is worth changing.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// What would be changed.
    pub measure: Measure,
    /// The change of the source, by its name in JSON; `None` if numaloc cures it with a plan.
    pub change: Option<&'static str>,
    /// Whether changing it is likely to help; never unlikely.
    pub likelihood: Likelihood,
    /// What is wrong, in a clause.
    pub what: String,
    /// Where it is: memory, and lines of code that are known.
    pub place: Option<String>,
    /// What to do, in a clause.
    pub remedy: String,
    /// What that saves, if it is known in seconds.
    pub saves: Option<Saves>,
    /// What it gains otherwise, in a clause.
    pub gain: Option<String>,
    /// What the figures are based on, in a clause.
    pub basis: String,
}

/// Modelled seconds that a change saves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Saves {
    /// Seconds of the run as it is.
    pub as_it_is: f64,
    /// Those saved.
    pub seconds: f64,
    /// Least of them, by the error of the model or of the samples.
    pub least: f64,
    /// Most of them.
    pub most: f64,
}
