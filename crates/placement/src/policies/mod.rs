//! The registry: one policy, one file, one line in [`POLICIES`].

use numaloc_model::LogicalNode;

use crate::error::PlaceError;
use crate::input::PlaceInput;
use crate::view::View;

mod balanced;
mod first_touch;
mod hbm;
mod interleave;
mod locality;
mod marathe;
mod mixed;
mod next_touch;
mod random;
mod tier;
mod weighted_interleave;

/// An algorithm that chooses a node for every page.
pub trait PlacementPolicy: Sync {
    /// The name on the command line, in plans and reports.
    fn name(&self) -> &'static str;

    /// One-line summary for the user: what it does.
    fn summary(&self) -> &'static str;

    /// Paper or system it comes from, and the place there, for the user.
    fn source(&self) -> &'static str;

    /// Whether it asks for [`PlaceInput::beyond`], which takes a pass over the page accesses.
    fn counts_lines(&self) -> bool {
        false
    }

    /// Whether input and machine have what the policy needs; called before [`Self::preferred_nodes`].
    ///
    /// # Errors
    /// [`PlaceError`] with what is missing.
    fn check(&self, _input: &PlaceInput) -> Result<(), PlaceError> {
        Ok(())
    }

    /// The preferred node of each page of [`View::usage`]; `None` leaves a page to the kernel's first touch. Capacities
    /// are applied afterwards, see [`crate::place()`].
    fn preferred_nodes(&self, view: &View) -> Vec<Option<LogicalNode>>;

    /// A remark about the input for the user, one sentence.
    fn remark(&self, _view: &View) -> Option<String> {
        None
    }
}

/// The policy that every other is compared with: what the kernel does without a plan.
pub const BASELINE: &dyn PlacementPolicy = &first_touch::FirstTouch;

/// Every page policy.
pub const POLICIES: &[&dyn PlacementPolicy] = &[
    &first_touch::FirstTouch,
    &next_touch::NextTouch,
    &random::Random,
    &interleave::Interleave,
    &weighted_interleave::WeightedInterleave,
    &locality::Locality,
    &balanced::Balanced,
    &mixed::Mixed,
    &hbm::Hbm,
    &tier::Tier,
    &marathe::Marathe,
];

/// The policy with that name.
#[must_use]
pub fn policy(name: &str) -> Option<&'static dyn PlacementPolicy> {
    POLICIES
        .iter()
        .copied()
        .find(|policy| policy.name() == name)
}

#[cfg(test)]
mod tests {
    use super::POLICIES;

    #[test]
    fn names_are_distinct_and_described() {
        for (at, policy) in POLICIES.iter().enumerate() {
            assert!(!policy.summary().is_empty() && !policy.source().is_empty());
            assert!(
                POLICIES[..at]
                    .iter()
                    .all(|other| other.name() != policy.name())
            );
        }
    }
}
