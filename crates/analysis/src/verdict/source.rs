//! Changes of the source that the caller rates, as problems: which memory, who initialises it where, and what to write.

use numaloc_model::{CodePlace, number};

use super::problem::{Problem, Saves};
use super::{Evidence, Likelihood, Measure, placement};
use crate::objects::named_label;
use crate::outlook::{ChangeOf, SourceChange};
use crate::remark::size;
use crate::sites::place_label;

/// Most objects that are named.
const NAMED: usize = 3;

/// A change as a problem.
pub(super) fn problem(evidence: &Evidence<'_>, change: &SourceChange) -> Problem {
    let who = placement::thread_words(evidence, change.first);
    let what = match change.name {
        "touch_by_users" => format!(
            "first touch: {who} initialises memory that {} threads use",
            change.threads
        ),
        "replicate" => format!(
            "{} threads read memory that is on one node, and none writes it after load",
            change.threads
        ),
        _ => format!("{} threads use memory that is on one node", change.threads),
    };
    Problem {
        measure: Measure::PagePlacement,
        change: Some(change.name),
        likelihood: match change.before > change.after * (1.0 + change.error) {
            true => Likelihood::Likely,
            false => Likelihood::CannotTell,
        },
        what,
        place: Some(place(evidence, change)),
        remedy: remedy(change),
        saves: Some(saves(evidence, change)),
        gain: None,
        basis: format!(
            "modelled, +- {:.0} %, if {}; advise simulates it",
            100.0 * change.error,
            change.assumes
        ),
    }
}

/// A simulated change as a problem. `shared`: the problem that contended lines are.
pub(super) fn simulated(
    evidence: &Evidence<'_>,
    change: &SourceChange,
    shared: Option<&Problem>,
) -> Problem {
    let basis = format!(
        "simulated from the access trace, +- {:.0} %, if {}",
        100.0 * change.error,
        change.assumes
    );
    let found = match (change.of, shared) {
        (ChangeOf::Lines, Some(shared)) => Problem {
            change: Some(change.name),
            ..shared.clone()
        },
        (ChangeOf::Run, _) => Problem {
            measure: match change.name {
                "bind" => Measure::ThreadMapping,
                _ => Measure::PagePlacement,
            },
            change: None,
            what: "threads or pages are on other nodes than they could be".to_owned(),
            place: None,
            remedy: format!("{} with the plan below", change.headline),
            ..problem(evidence, change)
        },
        _ => problem(evidence, change),
    };
    let mut found = Problem {
        likelihood: Likelihood::Likely,
        saves: Some(saves(evidence, change)),
        basis,
        ..found
    };
    if change.needs_next {
        found.remedy += "; saves time only together with the next one";
    }
    found
}

fn saves(evidence: &Evidence<'_>, change: &SourceChange) -> Saves {
    let apart = |seconds: f64| (change.before - seconds).max(0.0);
    let first = evidence.candidates.changes.first();
    Saves {
        // A change is made on top of those before it, its share is that of the run without any.
        as_it_is: first.map_or(change.before, |first| first.before),
        seconds: apart(change.after),
        least: apart(change.after * (1.0 + change.error)),
        most: apart(change.after / (1.0 + change.error)),
    }
}

/// `initialise it by the threads that use it: #pragma omp parallel for schedule(static)`.
fn remedy(change: &SourceChange) -> String {
    let line = change.write.iter().find(|line| !line.starts_with("//"));
    let code = |line: &String| {
        let end = [line.find("  //"), line.find("  !")];
        let end = end.into_iter().flatten().min().unwrap_or(line.len());
        line[..end].trim_end().to_owned()
    };
    let takes = match change.takes {
        0 => String::new(),
        bytes => format!(" (costs {})", size(bytes)),
    };
    match line.map(code) {
        Some(code) => format!("{}{takes}: {code}", change.headline),
        None => format!("{}{takes}", change.headline),
    }
}

/// The memory, and the lines that initialise and use it.
fn place(evidence: &Evidence<'_>, change: &SourceChange) -> String {
    let label = |&of| named_label(evidence.profile, of);
    let mut names: Vec<String> = change.memory.iter().map(label).collect();
    names.dedup();
    if names.len() > NAMED {
        let others = names.len() - NAMED;
        names.truncate(NAMED);
        names.push(number::plural(others, "other"));
    }
    let pages = number::plural(change.pages, "page");
    let mut text = format!("{}, {pages}", names.join(", "));
    if let Some((first, others)) = change.begins.split_first() {
        let others = others.iter().filter_map(|place| place.source.clone());
        let labels: Vec<String> = std::iter::once(place_label(first)).chain(others).collect();
        text += &format!(", initialised in {}", labels.join(", "));
    }
    let used: Option<&CodePlace> = change.used.as_ref().filter(|place| place.is_known());
    if let Some(used) = used {
        text += &format!(", used in {}", place_label(used));
    }
    text
}
