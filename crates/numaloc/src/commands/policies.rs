//! Policies and planning at the command line: lists for `--help`, and errors in the words of the user.

use std::path::Path;

use numaloc_placement::PlaceError;
use numaloc_plan::registry::{Entry, Kind, Place, entries};
use numaloc_plan::{PlanError, UnknownPolicy};

use crate::error::{CliError, did_you_mean};

impl From<UnknownPolicy> for CliError {
    fn from(error: UnknownPolicy) -> Self {
        let answer =
            Self::usage(&error).expected(format!("all, or one of: {}", error.known.join(", ")));
        match did_you_mean(&error.given, error.known) {
            Some(near) => answer.hint(near),
            None => answer,
        }
    }
}

/// Why the profile at `path` cannot be planned.
pub fn failed(path: &Path, error: PlanError) -> CliError {
    let path = path.display();
    match error {
        PlanError::NoLayer { layer, present } => {
            let names: Vec<_> = present.iter().map(|layer| layer.name()).collect();
            CliError::tool(format!(
                "cannot map {path} by layer {}: it has no such layer",
                layer.name()
            ))
            .expected(format!("one of: {}", names.join(", ")))
        }
        PlanError::Communication(error) => CliError::tool(format!("cannot use {path}: {error}")),
        PlanError::NoPageUse => CliError::tool(format!(
            "cannot map {path} by shared pages: it has no page usage"
        )),
        PlanError::Place(error @ PlaceError::NoBandwidth { .. }) => CliError::usage(error)
            .hint("`--weights` gives a weight for each node; `numaloc machines calibrate` measures bandwidths"),
        PlanError::Place(error) => CliError::usage(error),
        other => CliError::tool(other),
    }
}

/// Help of a command: `text`, then a line for each of its policies.
pub fn help(text: &str, place: Place) -> String {
    let mut out = text.to_owned();
    for (kind, title) in [
        (Kind::Threads, "Thread policies"),
        (Kind::Pages, "Page policies"),
    ] {
        let entries = entries(kind, place);
        if !entries.is_empty() {
            out += &format!("\n\n{title}:");
            out.extend(entries.iter().map(line));
        }
    }
    out
}

fn line(entry: &Entry) -> String {
    // Another spelling of the name needs no mention.
    let others = entry.aliases.iter();
    let aliases: String = others
        .filter(|alias| **alias != entry.name.replace('-', ""))
        .map(|alias| format!("; also {alias}"))
        .collect();
    let Entry {
        name,
        summary,
        source,
        ..
    } = entry;
    format!("\n  {name:<12} {summary} ({source}{aliases})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_a_line_of_at_most_100_columns_for_each_policy() {
        for place in [Place::Matrix, Place::Profile, Place::Simulation] {
            let text = help("Examples", place);
            assert!(
                text.lines().all(|line| line.chars().count() <= 100),
                "{text}"
            );
            let policies = [Kind::Threads, Kind::Pages].map(|kind| entries(kind, place).len());
            let lines = text.lines().filter(|line| line.starts_with("  ")).count();
            assert_eq!(lines, policies.iter().sum::<usize>());
        }
    }
}
