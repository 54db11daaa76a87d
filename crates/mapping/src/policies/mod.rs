//! The registry of thread policies: one file each, one line here.

use crate::policy::MappingPolicy;

pub mod balance;
pub mod choice_map;
pub mod cmlb;
pub mod compact;
pub mod deloc;
pub mod eager_map;
pub mod mpipp;
pub mod numaloc;
pub mod packed;
pub mod random;
pub mod scatter;
pub mod scotch;
pub mod tree_match;

/// Every policy, simplest first.
pub static REGISTRY: &[&dyn MappingPolicy] = &[
    &packed::Packed,
    &compact::Compact,
    &scatter::Scatter,
    &random::Random,
    &balance::Balance {
        by: balance::Load::Communication,
    },
    &balance::Balance {
        by: balance::Load::Memory,
    },
    &tree_match::TreeMatch,
    &eager_map::EagerMap,
    &choice_map::ChoiceMap,
    &scotch::Scotch {
        strategy: scotch::Strategy::Recursive,
    },
    &mpipp::Mpipp { starts: 4 },
    &deloc::DeLoc::PRINTED,
    &deloc::DeLoc::BY_RUN,
    &deloc::DeLoc::JOINING,
    &cmlb::Cmlb,
    &numaloc::Numaloc { balance: 1.0 },
];

/// Name of the default policy.
pub const DEFAULT_POLICY: &str = "numaloc";

/// Alternative names of policies, as used in papers: `(alias, name)`. `locality` is DeLoc's baseline of that name,
/// which the paper computes with TreeMatch (section IV).
pub const ALIASES: &[(&str, &str)] = &[
    ("locality", "tree-match"),
    ("treematch", "tree-match"),
    ("eagermap", "eager-map"),
    ("choicemap", "choice-map"),
];

/// Every policy, simplest first.
#[must_use]
pub fn registry() -> &'static [&'static dyn MappingPolicy] {
    REGISTRY
}

/// The policy of that name or alias.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static dyn MappingPolicy> {
    let name = ALIASES
        .iter()
        .find(|(alias, _)| *alias == name)
        .map_or(name, |(_, name)| name);
    REGISTRY
        .iter()
        .copied()
        .find(|policy| policy.name() == name)
}
