//! Policy names as users give them: one name, or `all`.

use numaloc_mapping::MappingPolicy;
use numaloc_placement::PlacementPolicy;

use crate::error::{CliError, did_you_mean};

fn unknown<'a>(what: &str, given: &str, known: impl Iterator<Item = &'a str> + Clone) -> CliError {
    let names: Vec<&str> = known.clone().collect();
    let error = CliError::usage(format!("unknown {what} policy {given:?}"))
        .expected(format!("all, or one of: {}", names.join(", ")));
    match did_you_mean(given, known) {
        Some(near) => error.hint(near),
        None => error,
    }
}

/// The thread policies that `given` names.
pub fn threads(given: &str) -> Result<Vec<&'static dyn MappingPolicy>, CliError> {
    registered(given, &[])
}

/// The same, if the names in `others` are accepted too (for the error message).
fn registered(
    given: &str,
    others: &[&'static str],
) -> Result<Vec<&'static dyn MappingPolicy>, CliError> {
    if given == "all" {
        return Ok(numaloc_mapping::registry().to_vec());
    }
    let aliases = numaloc_mapping::policies::ALIASES
        .iter()
        .map(|(alias, _)| *alias);
    numaloc_mapping::by_name(given)
        .map(|policy| vec![policy])
        .ok_or_else(|| {
            let names = numaloc_mapping::registry()
                .iter()
                .map(|policy| policy.name());
            unknown(
                "thread",
                given,
                names.chain(aliases).chain(others.iter().copied()),
            )
        })
}

/// Decides threads and pages together, on the command line and in plans.
pub const JOINT: &str = "joint";

/// A thread policy for a recorded program.
#[derive(Clone, Copy)]
pub enum ThreadPolicy {
    /// A policy of the registry, which maps by communication.
    Listed(&'static dyn MappingPolicy),
    /// Groups threads that use the same pages.
    SharedPages,
    /// Leaves threads to the operating system; only pages are placed.
    Os,
}

impl ThreadPolicy {
    /// Name on the command line and in plans.
    pub fn name(self) -> &'static str {
        match self {
            Self::Listed(policy) => policy.name(),
            Self::SharedPages => "shared-pages",
            Self::Os => "os",
        }
    }
}

/// The thread policies that `given` names for a profile. `all` are those that map by communication.
pub fn threads_of_profile(given: &str) -> Result<Vec<ThreadPolicy>, CliError> {
    let others = [ThreadPolicy::SharedPages, ThreadPolicy::Os];
    if let Some(policy) = others.into_iter().find(|policy| policy.name() == given) {
        return Ok(vec![policy]);
    }
    let [pages, os] = others.map(ThreadPolicy::name);
    let listed = registered(given, &[pages, os, JOINT])?;
    Ok(listed.into_iter().map(ThreadPolicy::Listed).collect())
}

/// The page policies that `given` names; `others` are names that the caller accepts in addition to those of the
/// registry.
pub fn pages(
    given: &str,
    others: &[&'static str],
) -> Result<Vec<&'static dyn PlacementPolicy>, CliError> {
    if given == "all" {
        return Ok(numaloc_placement::POLICIES.to_vec());
    }
    numaloc_placement::policy(given)
        .map(|policy| vec![policy])
        .ok_or_else(|| {
            unknown(
                "page",
                given,
                numaloc_placement::POLICIES
                    .iter()
                    .map(|policy| policy.name())
                    .chain(others.iter().copied()),
            )
        })
}
