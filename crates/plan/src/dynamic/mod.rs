//! Planned dynamics: which threads and pages move while the program runs, and when.
//!
//! Follows OPT (2015), sections 4.1.3, 6.2.2 and 6.3: phases, five conditions for moving threads, a least time between
//! moves of pages. Added to it: each move must be predicted to gain more than it costs ([`mod@schedule`]).
//!
//! | module | decides |
//! |---|---|
//! | [`options`] | the constants |
//! | [`phases`] | where phases begin, and what threads do in each |
//! | [`conditions`] | whether threads and pages may move |
//! | [`align`] | which of several equal mappings moves fewest threads |
//! | [`ways`] | what moves at the beginning of a phase: the best of staying and moving threads, pages or both |
//! | [`mod@schedule`] | the moves of a whole run |
//! | `triggers` | by which marks a native run recognises phases |
//! | `assemble` | the plan with its schedule |

pub mod align;
mod assemble;
pub mod conditions;
pub mod options;
pub mod phases;
pub mod schedule;
#[cfg(test)]
mod tests;
mod triggers;
pub mod ways;

pub use assemble::Moved;
pub use conditions::{Situation, Unmet};
pub use options::{Detector, Dynamics};
pub use phases::Phase;
pub use schedule::Schedule;
pub use ways::Step;

use numaloc_model::pages::PageUsage;
use numaloc_model::{LogicalNode, Mapping};
use numaloc_placement::{PlaceInput, PlacementPolicy};

use crate::error::PlanError;
use crate::plan::{PlanRequest, Planned};
use crate::registry::{BASELINE, Choice, JOINT, ThreadPolicy};
use crate::threads;

/// The phases of a planned run and its schedule.
#[derive(Clone, Debug)]
pub struct Dynamic {
    /// The constants that the schedule was made with.
    pub dynamics: Dynamics,
    /// The phases, in order.
    pub phases: Vec<Phase>,
    /// The start and the moves.
    pub schedule: Schedule,
}

/// Makes a schedule with the first thread policy and the last page policy of `planned`, whose answer is the mapping and
/// placement that the schedule is compared with.
///
/// # Errors
/// [`PlanError::NotDynamic`] for policies and machines without schedules; [`PlanError`] of a policy.
pub fn dynamic(planned: &Planned, dynamics: &Dynamics) -> Result<Dynamic, PlanError> {
    let request = planned.request();
    let PlanRequest {
        subject, machine, ..
    } = request;
    let not = |what: &str| PlanError::NotDynamic {
        what: what.to_owned(),
    };
    let (threads, pages) = match request.choice {
        Choice::Joint | Choice::Best(_) => return Err(not(JOINT)),
        Choice::Separate { threads, pages } => (threads.first(), pages.last()),
    };
    let baseline: &'static dyn PlacementPolicy = BASELINE;
    let policies = OfRequest {
        request,
        threads: *threads.ok_or_else(|| not("a plan without thread policy"))?,
        pages: *pages.unwrap_or(&baseline),
    };
    if policies.threads.name() == ThreadPolicy::Os.name() {
        return Err(not(ThreadPolicy::Os.name()));
    }
    if machine.network().is_some() {
        return Err(not("a cluster"));
    }
    let profile = subject.profile();
    let ranges = phases::detected(profile, subject.layer(), dynamics);
    let phases = phases::observed(profile, subject.layer(), &ranges, machine, dynamics)?;
    let (first, last) = (
        &planned.threads()[0],
        &planned.pages()[planned.pages().len() - 1],
    );
    let whole_run = schedule::Static {
        mapping: &first.mapped.mapping,
        placement: &last.placement,
    };
    Ok(Dynamic {
        dynamics: *dynamics,
        schedule: schedule::schedule(&phases, &policies, machine, whole_run, dynamics)?,
        phases,
    })
}

/// The policies of a request, for a phase each time.
struct OfRequest<'a> {
    request: PlanRequest<'a>,
    threads: ThreadPolicy,
    pages: &'static dyn PlacementPolicy,
}

impl ways::Policies for OfRequest<'_> {
    fn map(&self, phase: &Phase) -> Result<Mapping, PlanError> {
        let PlanRequest {
            subject,
            machine,
            options,
            ..
        } = self.request;
        let communication = subject.communication().during(phase.weights.clone());
        let input = threads::problem(&communication, machine, options);
        let mapped = threads::run(self.threads, &input, subject.profile(), options)?;
        Ok(mapped.mapping)
    }

    fn place(
        &self,
        usage: &PageUsage,
        mapping: &Mapping,
    ) -> Result<Vec<Option<LogicalNode>>, PlanError> {
        let PlanRequest {
            machine, options, ..
        } = self.request;
        let input = PlaceInput {
            page_size: options.page_size.unwrap_or(usage.page_size()),
            seed: options.seed,
            min_exclusivity: options.min_exclusivity,
            weights: options.weights.as_deref(),
            capacity_bytes: options.capacity.as_deref(),
            ..PlaceInput::new(usage, mapping, machine)
        };
        Ok(numaloc_placement::place(self.pages, &input)?.placement.node)
    }
}
