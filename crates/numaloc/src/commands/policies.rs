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
            unknown("thread", given, names.chain(aliases))
        })
}

/// The page policies that `given` names.
pub fn pages(given: &str) -> Result<Vec<&'static dyn PlacementPolicy>, CliError> {
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
                    .map(|policy| policy.name()),
            )
        })
}
