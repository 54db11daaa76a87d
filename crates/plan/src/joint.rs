//! Threads and pages decided together, from the answers of all thread policies.

use numaloc_mapping::Mapped;
use numaloc_placement::PlaceError;
use numaloc_placement::joint::{Candidate, Weights, joint};

use crate::accesses::BeyondCaches;
use crate::error::PlanError;
use crate::observer::{Observer, Work};
use crate::options::Options;
use crate::pages::{self, PageAnswer};
use crate::registry::{JOINT, ThreadPolicy};
use crate::subject::Subject;
use crate::threads::{self, ThreadAnswer};

/// Maximum number of threads for MPIPP; beyond it, MPIPP takes longer than everything else together.
const MPIPP_THREADS: usize = 64;

/// The policies whose answers the joint policy starts from, for this many threads.
#[must_use]
pub fn starts(threads: usize) -> Vec<ThreadPolicy> {
    let slow = |policy: &ThreadPolicy| policy.name() == "mpipp" && threads > MPIPP_THREADS;
    ThreadPolicy::listed()
        .filter(|policy| !slow(policy))
        .collect()
}

/// Improves the best combination of the answers `from` with any page policy.
pub(crate) fn decide(
    from: &[ThreadAnswer],
    subject: &Subject,
    beyond: &BeyondCaches,
    options: &Options,
    observer: &dyn Observer,
) -> Result<(ThreadAnswer, PageAnswer), PlanError> {
    let (profile, machine) = (beyond.profile, beyond.machine);
    observer.begin(Work::Joint);
    let lines = profile.matrix_in_lines(subject.layer())?;
    let candidates: Vec<Candidate> = from
        .iter()
        .map(|answer| Candidate {
            policy: answer.policy,
            mapping: &answer.mapped.mapping,
        })
        .collect();
    let Some(first) = candidates.first() else {
        let why = "no thread policy answered".to_owned();
        return Err(PlaceError::Candidates { why }.into());
    };
    let input = pages::problem(profile, first.mapping, machine, options);
    let weights = Weights {
        in_flight: options.in_flight,
        ..Weights::of(machine)
    };
    let answer = joint(&input, &lines, &candidates, weights, &|what| {
        observer.step(what)
    })?;
    observer.end(Work::Joint);
    let pages = PageAnswer::rated(JOINT, answer.placed, &answer.mapping, beyond);
    let recorded = threads::problem(subject.communication(), machine, options);
    let mapped = Mapped::plain(answer.mapping.pu);
    Ok((ThreadAnswer::rated(JOINT, mapped, &recorded), pages))
}
