//! What a policy is: a name, a sentence, and the algorithm from a [`MapInput`] to a [`Mapped`].

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
    /// What the policy has to say about its work, as `(name, value)`: passes, moves, groups.
    pub diagnostics: Vec<(&'static str, f64)>,
    /// What a person should know of the choice, a sentence each: what was given up, and what for.
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

/// A way to choose PUs for tasks. Deterministic for an input and its seed.
pub trait MappingPolicy: Send + Sync {
    /// Name on the command line, in plans and in reports.
    fn name(&self) -> &'static str;

    /// One line for people: what it does, whose it is.
    fn summary(&self) -> &'static str;

    /// The algorithm itself. Callers use [`map`], which checks what goes in and comes out.
    ///
    /// # Errors
    /// [`MapError`] where a library fails or the problem is too large for the policy.
    fn map(&self, input: &MapInput) -> Result<Mapped, MapError>;
}

/// Maps with a policy, after checking the input.
///
/// # Errors
/// [`MapError`] for loads or groups that do not fit the tasks, and what the policy reports.
///
/// # Panics
/// If the policy breaks a promise: a task without PU, or a PU above ceil(tasks / PUs).
pub fn map(policy: &dyn MappingPolicy, input: &MapInput) -> Result<Mapped, MapError> {
    input.check()?;
    let mapped = policy.map(input)?;
    if let Err(broken) = crate::evaluate::check_mapping(input, &mapped.mapping) {
        panic!("policy {} broke its promise: {broken}", policy.name());
    }
    Ok(mapped)
}
