//! From a request to the answers of all policies asked for, and to the plan that the chosen answer makes.

use numaloc_mapping::Evaluation;
use numaloc_model::plan::{Predicted, Provenance};
use numaloc_model::{Mapping, Placement};
use numaloc_placement::{Assembled, PlacementPolicy};
use numaloc_topology::Topology;

use crate::accesses::BeyondCaches;
use crate::best::{self, Ranking};
use crate::best_ranks;
use crate::error::PlanError;
use crate::joint;
use crate::observer::Observer;
use crate::options::Options;
use crate::pages::{self, PageAnswer};
use crate::ranks::{RankModel, RankRanking};
use crate::registry::{Choice, JOINT, Open, ThreadPolicy, UNRATED_PAGES, UNRATED_THREADS};
use crate::subject::Subject;
use crate::threads::{self, ThreadAnswer};
use crate::unplanned::Unplanned;

/// What is planned for which machine, and how.
#[derive(Clone, Copy)]
pub struct PlanRequest<'a> {
    /// The profile as it is planned.
    pub subject: &'a Subject<'a>,
    /// The machine.
    pub machine: &'a Topology,
    /// The policies.
    pub choice: &'a Choice,
    /// Their parameters.
    pub options: &'a Options,
}

/// The answers of all policies of a request.
pub struct Planned<'a> {
    request: PlanRequest<'a>,
    /// Answers for threads; the first is the one that pages are placed for. Never empty.
    threads: Vec<ThreadAnswer>,
    /// Answers for pages under the first mapping: first touch, the baseline, then those of the request. Never empty.
    pages: Vec<PageAnswer>,
    /// The candidates that the plan was chosen from by their worth.
    ranking: Option<Ranking>,
    /// The same of ranks on a cluster.
    rank_ranking: Option<RankRanking>,
    beyond: BeyondCaches<'a>,
}

/// Maps threads and places pages by every policy of the request.
///
/// # Errors
/// [`PlanError`] of the first policy that fails.
///
/// # Panics
/// If the request names no thread policy.
pub fn plan<'a>(
    request: PlanRequest<'a>,
    observer: &dyn Observer,
) -> Result<Planned<'a>, PlanError> {
    let PlanRequest {
        subject,
        machine,
        choice,
        options,
    } = request;
    let profile = subject.profile();
    let beyond = BeyondCaches::of(profile, machine);
    let starts;
    let closed;
    let (policies, page_policies) = match choice {
        Choice::Separate { threads, pages } => (threads, &pages[..]),
        Choice::Best(open) => {
            if let Some(best) = best::best(open, subject, &beyond, options, observer)? {
                return Ok(Planned {
                    request,
                    threads: vec![best.threads],
                    pages: best.pages,
                    ranking: Some(best.ranking),
                    rank_ranking: None,
                    beyond,
                });
            }
            if let Some(found) = best_ranks::best(open, subject, machine, options, observer)? {
                let mapping = &found.answer.mapped.mapping;
                let policies = unrated(open).1;
                let pages = pages::place_all(&policies, &beyond, mapping, options, observer)?;
                return Ok(Planned {
                    request,
                    threads: vec![found.answer],
                    pages,
                    ranking: None,
                    rank_ranking: Some(found.ranking),
                    beyond,
                });
            }
            closed = unrated(open);
            (&closed.0, &closed.1[..])
        }
        Choice::Joint => {
            starts = joint::starts(profile.threads().len());
            (&starts, &[][..])
        }
    };
    let mut threads = threads::map_all(policies, subject, machine, options, observer)?;
    let decided = match choice {
        Choice::Separate { .. } | Choice::Best(_) => None,
        Choice::Joint => {
            let (first, pages) = joint::decide(&threads, subject, &beyond, options, observer)?;
            threads.insert(0, first);
            Some(pages)
        }
    };
    let mapping = &threads[0].mapped.mapping;
    let mut pages = pages::place_all(page_policies, &beyond, mapping, options, observer)?;
    pages.extend(decided);
    Ok(Planned {
        request,
        threads,
        pages,
        ranking: None,
        rank_ranking: None,
        beyond,
    })
}

/// The policies of what a request leaves open where the model of worth does not apply.
fn unrated(open: &Open) -> (Vec<ThreadPolicy>, Vec<&'static dyn PlacementPolicy>) {
    let threads = open.threads.clone();
    let pages = open.pages.clone();
    (
        threads.unwrap_or_else(|| ThreadPolicy::named(UNRATED_THREADS).into_iter().collect()),
        pages.unwrap_or_else(|| {
            numaloc_placement::policy(UNRATED_PAGES)
                .into_iter()
                .collect()
        }),
    )
}

impl<'a> Planned<'a> {
    /// What was asked.
    #[must_use]
    pub fn request(&self) -> PlanRequest<'a> {
        self.request
    }

    /// Answers for threads; the first is the one that pages are placed for. Never empty.
    #[must_use]
    pub fn threads(&self) -> &[ThreadAnswer] {
        &self.threads
    }

    /// Answers for pages under the first mapping: first touch, the baseline, then those of the request. Never empty.
    #[must_use]
    pub fn pages(&self) -> &[PageAnswer] {
        &self.pages
    }

    /// What the plan and its competitors are worth: those that it was chosen from, or for policies that were named the
    /// answers of each. `None` if the model does not apply.
    #[must_use]
    pub fn ranking(&self) -> Option<Ranking> {
        let PlanRequest {
            subject,
            machine,
            options,
            ..
        } = self.request;
        let known = self.ranking.clone();
        known.or_else(|| best::rank(&self.threads, &self.pages, subject, machine, options))
    }

    /// What the mappings of ranks to hosts are worth: of those that the plan was chosen from, or of the policies that
    /// were named. `None` if the model does not apply.
    #[must_use]
    pub fn rank_ranking(&self) -> Option<RankRanking> {
        let PlanRequest {
            subject,
            machine,
            options,
            ..
        } = self.request;
        let known = self.rank_ranking.clone();
        known.or_else(|| {
            let model = RankModel::of(subject, machine, options)?;
            let answers = self.threads.iter();
            Some(model.rank(answers.map(|answer| (answer.policy, &answer.mapped.mapping))))
        })
    }

    /// What a run without a plan is expected to do.
    #[must_use]
    pub fn unplanned(&self) -> Unplanned {
        Unplanned::of(
            self.request.subject,
            self.request.machine,
            self.request.options,
            &self.beyond,
        )
    }

    /// The plan of the first thread policy and the last page policy.
    #[must_use]
    pub fn assemble(&self) -> Assembled {
        self.assemble_with(&self.pages[self.pages.len() - 1])
    }

    /// The plan of the first thread policy and of one of [`Planned::pages`].
    #[must_use]
    pub fn assemble_with(&self, pages: &PageAnswer) -> Assembled {
        let threads = &self.threads[0];
        let mapping = &threads.mapped.mapping;
        let mut assembled = self.assembled(mapping, &pages.placement, pages, &threads.value);
        if threads.policy == ThreadPolicy::Os.name() {
            // Listed, so that `run` does not report them as threads missing from the plan.
            let left = assembled.plan.threads.drain(..).map(|thread| thread.path);
            assembled.plan.provenance.left_out.extend(left);
        }
        assembled
    }

    /// A plan by the same policies with another mapping and placement.
    pub(crate) fn assemble_other(&self, mapping: &Mapping, placement: &Placement) -> Assembled {
        let PlanRequest {
            subject,
            machine,
            options,
            ..
        } = self.request;
        let input = threads::problem(subject.communication(), machine, options);
        self.assembled(
            mapping,
            placement,
            &self.pages[self.pages.len() - 1],
            &numaloc_mapping::evaluate(&input, mapping),
        )
    }

    /// `pages`: the answer whose policy the plan names.
    fn assembled(
        &self,
        mapping: &Mapping,
        placement: &Placement,
        pages: &PageAnswer,
        value: &Evaluation,
    ) -> Assembled {
        let (remote_accesses, accesses) = self.beyond.remote(mapping, placement);
        numaloc_placement::assemble(
            self.request.subject.profile(),
            self.request.machine,
            mapping,
            placement,
            self.provenance(&self.threads[0], pages),
            Predicted {
                cost: value.cost,
                remote: value.remote,
                total: value.total,
                node_imbalance: value.node_imbalance,
                remote_accesses,
                accesses,
            },
        )
    }

    fn provenance(&self, threads: &ThreadAnswer, pages: &PageAnswer) -> Provenance {
        let (subject, options) = (self.request.subject, self.request.options);
        let meta = subject.profile().meta();
        let parameter = |name: &str, value: String| (name.to_owned(), value);
        let mut parameters = vec![
            parameter("seed", options.seed.to_string()),
            parameter("min_exclusivity", options.min_exclusivity.to_string()),
        ];
        if pages.policy == JOINT {
            parameters.push(parameter("in_flight", options.in_flight.to_string()));
        }
        if let Some(weights) = &options.weights {
            let weights: Vec<String> = weights.iter().map(u32::to_string).collect();
            parameters.push(parameter("weights", weights.join(",")));
        }
        if let Some(capacity) = &options.capacity {
            let capacity: Vec<String> = capacity.iter().map(u64::to_string).collect();
            parameters.push(parameter("capacity", capacity.join(",")));
        }
        Provenance {
            thread_policy: threads.policy.to_owned(),
            page_policy: pages.policy.to_owned(),
            parameters,
            command: meta.command.clone(),
            tool: concat!("numaloc ", env!("CARGO_PKG_VERSION")).to_owned(),
            environment: (meta.frontend != "import").then(|| meta.conditions.environment.clone()),
            left_out: subject.left_out().to_vec(),
        }
    }
}
