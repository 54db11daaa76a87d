//! The default plan for ranks on a cluster: the best mapping by its seconds, of which the launcher's layout is the
//! first.

use numaloc_topology::Topology;

use crate::error::PlanError;
use crate::observer::Observer;
use crate::options::Options;
use crate::ranks::{RankModel, RankRanking};
use crate::registry::{Open, ThreadPolicy};
use crate::subject::Subject;
use crate::threads::{self, ThreadAnswer};

/// Thread policies of the candidates in order of simplicity; the first is as it is.
pub(crate) const CANDIDATES: [&str; 5] = ["launcher", "in-order", "scatter", "packed", "numaloc"];

/// The chosen answer, and all candidates.
pub(crate) struct BestRanks {
    pub answer: ThreadAnswer,
    pub ranking: RankRanking,
}

/// Rates all candidates, or the policies that were named, and takes the best; `None` if the model does not apply.
///
/// # Errors
/// [`PlanError`] of a policy that was named.
pub(crate) fn best(
    open: &Open,
    subject: &Subject,
    machine: &Topology,
    options: &Options,
    observer: &dyn Observer,
) -> Result<Option<BestRanks>, PlanError> {
    let Some(model) = RankModel::of(subject, machine, options) else {
        return Ok(None);
    };
    let mut answers = Vec::new();
    let named = open.threads.as_ref();
    let all = || {
        let names = CANDIDATES.iter();
        names.filter_map(|name| ThreadPolicy::named(name))
    };
    for policy in named.map_or_else(|| all().collect(), Vec::clone) {
        match threads::map_all(&[policy], subject, machine, options, observer) {
            Ok(mut found) => answers.append(&mut found),
            Err(error) if named.is_some() => return Err(error),
            // A candidate that has no answer for this machine is none.
            Err(_) => {}
        }
    }
    if answers.is_empty() {
        return Ok(None);
    }
    let candidates = answers.iter();
    let ranking = model.best(candidates.map(|answer| (answer.policy, &answer.mapped.mapping)));
    let answer = answers.swap_remove(ranking.chosen);
    Ok(Some(BestRanks { answer, ranking }))
}
