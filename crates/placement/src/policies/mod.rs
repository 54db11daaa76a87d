//! The registry: one policy, one file, one line in [`POLICIES`].

use numaloc_model::LogicalNode;

use crate::view::View;

mod balanced;
mod first_touch;
mod interleave;
mod locality;
mod marathe;
mod mixed;
mod next_touch;
mod random;

/// An algorithm that chooses a node for every page.
pub trait PlacementPolicy: Sync {
    /// The name on the command line, in plans and reports.
    fn name(&self) -> &'static str;

    /// One line for people: what it does.
    fn about(&self) -> &'static str;

    /// The node wished for each page of [`View::usage`]; `None` leaves a page to the kernel's first
    /// touch. Capacities are kept afterwards, see [`crate::place()`].
    fn wish(&self, view: &View) -> Vec<Option<LogicalNode>>;

    /// What a person should know of the input that the policy found, one sentence.
    fn remark(&self, _view: &View) -> Option<String> {
        None
    }
}

/// Every page policy.
pub const POLICIES: &[&dyn PlacementPolicy] = &[
    &first_touch::FirstTouch,
    &next_touch::NextTouch,
    &random::Random,
    &interleave::Interleave,
    &locality::Locality,
    &balanced::Balanced,
    &mixed::Mixed,
    &marathe::Marathe,
];

/// The policy of that name.
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
            assert!(!policy.about().is_empty());
            assert!(
                POLICIES[..at]
                    .iter()
                    .all(|other| other.name() != policy.name())
            );
        }
    }
}
