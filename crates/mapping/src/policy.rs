//! The interface of a thread policy: a name, a summary, and the algorithm from a [`MapInput`] to a [`Mapped`].

use numaloc_model::{LogicalPu, Mapping};

use crate::error::MapError;
use crate::input::MapInput;

/// A policy's answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Mapped {
    /// Task to PU.
    pub mapping: Mapping,
    /// Tasks that had to be moved because the policy itself overloaded a PU.
    pub repaired: usize,
    /// Figures on the policy's work, as `(name, value)`: passes, moves, groups.
    pub diagnostics: Vec<(&'static str, f64)>,
    /// Remarks on the choice for the user, a sentence each: what was given up, and for what.
    pub remarks: Vec<String>,
}

impl Mapped {
    /// A mapping that needed no repair and has no remarks.
    #[must_use]
    pub fn plain(pu: Vec<LogicalPu>) -> Self {
        Self {
            mapping: Mapping { pu },
            repaired: 0,
            diagnostics: Vec::new(),
            remarks: Vec::new(),
        }
    }
}

/// An algorithm that chooses PUs for tasks. Deterministic for an input and its seed.
pub trait MappingPolicy: Send + Sync {
    /// Name on the command line, in plans and in reports.
    fn name(&self) -> &'static str;

    /// One-line summary for the user: what it does.
    fn summary(&self) -> &'static str;

    /// Paper or system it comes from, and the place there, for the user.
    fn source(&self) -> &'static str;

    /// The algorithm. Callers use [`map`], which checks input and output.
    ///
    /// # Errors
    /// [`MapError`] if a library fails or the problem is too large for the policy.
    fn map(&self, input: &MapInput) -> Result<Mapped, MapError>;
}

/// Maps with a policy, after checking the input.
///
/// # Errors
/// [`MapError`] for loads or groups that do not fit the tasks, and errors of the policy.
///
/// # Panics
/// If the policy returns an invalid mapping: a task without PU, or a PU above ceil(tasks / PUs).
pub fn map(policy: &dyn MappingPolicy, input: &MapInput) -> Result<Mapped, MapError> {
    input.check()?;
    let mapped = policy.map(input)?;
    if let Err(broken) = crate::evaluate::check_mapping(input, &mapped.mapping) {
        panic!(
            "policy {} returned an invalid mapping: {broken}",
            policy.name()
        );
    }
    Ok(mapped)
}
