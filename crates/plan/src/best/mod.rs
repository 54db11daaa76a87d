//! The default plan: the best by the model of worth among all candidates, of which leaving the program as it is is the
//! first.
//!
//! Candidates are in order of simplicity: as it is, then by page policy, then by thread policy, `joint` last. A
//! candidate is chosen only if it beats "as it is" by more than its [error](Worth::error_of_gain); of those within
//! [`TIE`] of the best, the first. If the program hands out work at run time, another run may give it to other
//! threads: then no candidate depends on which thread uses which page, or communicates with which.

use std::collections::HashMap;

use numaloc_model::{LogicalPu, Mapping, Placement};
use numaloc_placement::PlacementPolicy;
use numaloc_topology::Topology;

use crate::accesses::BeyondCaches;
use crate::error::PlanError;
use crate::joint;
use crate::observer::Observer;
use crate::options::Options;
use crate::pages::{self, PageAnswer};
use crate::registry::{BASELINE, Open, ThreadPolicy};
use crate::subject::Subject;
use crate::threads::{self, ThreadAnswer};
use crate::worth::{Model, Seated, TIE, Worth};

#[cfg(test)]
mod tests;

/// Thread policies of the candidates in order of simplicity; `os` leaves threads as they are.
const THREADS: [&str; 9] = [
    "os",
    "in-order",
    "scatter",
    "packed",
    "compact",
    "balance-load",
    "deloc",
    "numaloc-spread",
    "numaloc",
];
/// Page policies of the candidates in order of simplicity.
const PAGES: [&str; 8] = [
    "first-touch",
    "interleave",
    "weighted-interleave",
    "locality",
    "balanced",
    "mixed",
    "hbm",
    "tier",
];
/// Those of [`THREADS`] that do not depend on what each thread does.
const UNTIED: [&str; 5] = ["os", "in-order", "scatter", "packed", "compact"];
/// Those of [`PAGES`] that do not place a page by the threads that use it.
const SPREADING: [&str; 3] = ["first-touch", "interleave", "weighted-interleave"];
/// The joint policy is a candidate up to this many threads times pages, so that planning takes no longer than the
/// policies of threads.
const MOST_JOINT: usize = 1 << 16;

/// A candidate and its worth.
#[derive(Clone, Debug, PartialEq)]
pub struct Rated {
    /// Thread policy.
    pub threads: &'static str,
    /// Page policy.
    pub pages: &'static str,
    /// What the model says of it.
    pub worth: Worth,
}

/// The candidates of a plan, and which of them was chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranking {
    /// The program as it is: threads where the kernel starts them, pages by first touch.
    pub as_it_is: Worth,
    /// In order of simplicity; never empty.
    pub candidates: Vec<Rated>,
    /// Index of the chosen one.
    pub chosen: usize,
}

impl Ranking {
    /// What the chosen candidate is worth.
    #[must_use]
    pub fn plan(&self) -> &Worth {
        &self.candidates[self.chosen].worth
    }

    /// Whether the plan takes longer than the program as it is, beyond the error of the model.
    #[must_use]
    pub fn loses(&self) -> bool {
        self.plan().loses_to(&self.as_it_is)
    }

    /// Share by which the ratio of the plan's time to that of the program as it is may be off.
    #[must_use]
    pub fn error(&self) -> f64 {
        self.plan().error_of_gain(&self.as_it_is)
    }

    /// Whether the plan leaves threads and pages as they are.
    #[must_use]
    pub fn leaves_as_it_is(&self) -> bool {
        let chosen = &self.candidates[self.chosen];
        chosen.threads == ThreadPolicy::Os.name() && chosen.pages == BASELINE.name()
    }

    fn choose(as_it_is: Worth, candidates: Vec<Rated>) -> Self {
        Self {
            chosen: first_of_the_best(&as_it_is, &candidates),
            as_it_is,
            candidates,
        }
    }
}

/// The first candidate within [`TIE`] of the fastest of those that beat "as it is" beyond their error. If none does:
/// "as it is", or the first within [`TIE`] of the fastest where that is no candidate.
fn first_of_the_best(as_it_is: &Worth, candidates: &[Rated]) -> usize {
    let saves = |rated: &&Rated| rated.worth.saves(as_it_is);
    let fastest = |best: f64, rated: &Rated| best.min(rated.worth.seconds);
    let saving = candidates.iter().filter(saves);
    let best = saving.fold(f64::INFINITY, fastest);
    let is_near = |rated: &Rated, best: f64| rated.worth.seconds <= best * (1.0 + TIE);
    let found = match best.is_finite() {
        true => candidates
            .iter()
            .position(|rated| saves(&rated) && is_near(rated, best)),
        false => {
            let best = candidates.iter().fold(f64::INFINITY, fastest);
            let kept = candidates.iter().position(|rated| rated.worth == *as_it_is);
            kept.or_else(|| candidates.iter().position(|rated| is_near(rated, best)))
        }
    };
    found.unwrap_or(0)
}

/// The chosen answers, and all candidates.
pub(crate) struct Best {
    pub threads: ThreadAnswer,
    /// First touch under the chosen mapping, then the chosen answer if that is another.
    pub pages: Vec<PageAnswer>,
    pub ranking: Ranking,
}

/// Rates all candidates and takes the best; `None` if the model does not apply.
///
/// # Errors
/// [`PlanError`] of a policy that was named, or of first touch.
pub(crate) fn best(
    open: &Open,
    subject: &Subject,
    beyond: &BeyondCaches,
    options: &Options,
    observer: &dyn Observer,
) -> Result<Option<Best>, PlanError> {
    let (profile, machine) = (beyond.profile, beyond.machine);
    let Some(model) = Model::of(profile, subject.layer(), machine) else {
        return Ok(None);
    };
    let mut search = Search {
        open,
        subject,
        beyond,
        options,
        observer,
        holds: profile
            .meta()
            .conditions
            .repeatability(profile.threads().len())
            .holds(),
        rater: Rater::new(&model),
        answers: Vec::new(),
        placed: Vec::new(),
    };
    let as_it_is = search.as_it_is()?;
    search.map()?;
    search.place()?;
    search.decide_jointly();
    search.choose(as_it_is)
}

/// The candidates as they are found.
struct Search<'s, 'm> {
    open: &'s Open,
    subject: &'s Subject<'s>,
    beyond: &'s BeyondCaches<'s>,
    options: &'s Options,
    observer: &'s dyn Observer,
    /// Whether each thread does the same work in another run.
    holds: bool,
    rater: Rater<'m>,
    answers: Vec<ThreadAnswer>,
    /// Placements, each under one of the answers.
    placed: Vec<(usize, PageAnswer, Worth)>,
}

impl Search<'_, '_> {
    fn map_by(&self, policy: ThreadPolicy) -> Result<Vec<ThreadAnswer>, PlanError> {
        threads::map_all(
            &[policy],
            self.subject,
            self.beyond.machine,
            self.options,
            self.observer,
        )
    }

    fn place_by(
        &self,
        policy: &dyn PlacementPolicy,
        mapping: &Mapping,
    ) -> Result<PageAnswer, PlanError> {
        pages::place_one(policy, self.beyond, mapping, self.options, self.observer)
    }

    fn as_it_is(&mut self) -> Result<Worth, PlanError> {
        let os = self.map_by(ThreadPolicy::Os)?;
        let pages = self.subject.profile().pages().pages().len();
        let untouched = Placement {
            node: vec![None; pages],
        };
        Ok(self.rater.rate(&os[0], &untouched))
    }

    /// The thread policies' answers.
    fn map(&mut self) -> Result<(), PlanError> {
        let named = self.open.threads.as_ref();
        let serves = |name: &&&str| self.holds || UNTIED.contains(name);
        let all = || {
            let names = THREADS.iter().filter(serves);
            names.filter_map(|name| ThreadPolicy::named(name))
        };
        for policy in named.map_or_else(|| all().collect(), Vec::clone) {
            match self.map_by(policy) {
                Ok(mut found) => self.answers.append(&mut found),
                Err(error) if named.is_some() => return Err(error),
                // A candidate that has no answer for this machine is none.
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Every page policy under every answer.
    fn place(&mut self) -> Result<(), PlanError> {
        let named = self.open.pages.as_ref();
        let all = || {
            let names = PAGES.iter();
            names.filter_map(|name| numaloc_placement::policy(name))
        };
        for policy in named.map_or_else(|| all().collect(), Vec::clone) {
            // Pages can follow threads only if these stay.
            let follows = !SPREADING.contains(&policy.name());
            for at in 0..self.answers.len() {
                let is_os = self.answers[at].policy == ThreadPolicy::Os.name();
                let moves = is_os && self.open.threads.is_none() || !self.holds;
                if follows && moves && named.is_none() {
                    continue;
                }
                let mapping = &self.answers[at].mapped.mapping;
                // A candidate that has no answer for this machine is none.
                if named.is_none() && !pages::fits(policy, self.beyond, mapping, self.options) {
                    continue;
                }
                let found = self.place_by(policy, mapping)?;
                let worth = self.rater.rate(&self.answers[at], &found.placement);
                self.placed.push((at, found, worth));
            }
        }
        Ok(())
    }

    /// The joint policy, if everything is open and the profile is small enough.
    fn decide_jointly(&mut self) {
        let profile = self.subject.profile();
        let cells = profile.threads().len() * profile.pages().pages().len();
        let all_open = self.open.threads.is_none() && self.open.pages.is_none();
        let Some(starts) = self.answers.get(1..) else {
            return;
        };
        if !all_open || !self.holds || cells > MOST_JOINT {
            return;
        }
        let decided = joint::decide(
            starts,
            self.subject,
            self.beyond,
            self.options,
            self.observer,
        );
        // A candidate that has no answer for this machine is none.
        if let Ok((threads, pages)) = decided {
            let worth = self.rater.rate(&threads, &pages.placement);
            self.placed.push((self.answers.len(), pages, worth));
            self.answers.push(threads);
        }
    }

    fn choose(mut self, as_it_is: Worth) -> Result<Option<Best>, PlanError> {
        let rated = |(at, pages, worth): &(usize, PageAnswer, Worth)| Rated {
            threads: self.answers[*at].policy,
            pages: pages.policy,
            worth: *worth,
        };
        let candidates: Vec<Rated> = self.placed.iter().map(rated).collect();
        if candidates.is_empty() {
            return Ok(None);
        }
        let ranking = Ranking::choose(as_it_is, candidates);
        let (at, chosen, _) = self.placed.swap_remove(ranking.chosen);
        let threads = self.answers.swap_remove(at);
        let mut pages = vec![self.place_by(BASELINE, &threads.mapped.mapping)?];
        if chosen.policy != BASELINE.name() {
            pages.push(chosen);
        }
        Ok(Some(Best {
            threads,
            pages,
            ranking,
        }))
    }
}

/// Rates the answers of a comparison: each thread policy with first touch, then each page policy under the first
/// mapping. The last is the plan.
pub(crate) fn rank(
    threads: &[ThreadAnswer],
    pages: &[PageAnswer],
    subject: &Subject,
    machine: &Topology,
    options: &Options,
) -> Option<Ranking> {
    let profile = subject.profile();
    let model = Model::of(profile, subject.layer(), machine)?;
    let input = threads::problem(subject.communication(), machine, options);
    let os = threads::run(ThreadPolicy::Os, &input, profile, options).ok()?;
    let os = ThreadAnswer::rated(ThreadPolicy::Os.name(), os, &input);
    let untouched = Placement {
        node: vec![None; profile.pages().pages().len()],
    };
    let mut rater = Rater::new(&model);
    let as_it_is = rater.rate(&os, &untouched);
    let first = threads.first()?;
    let baseline = BASELINE.name();
    let mut candidates: Vec<Rated> = threads[1..]
        .iter()
        .map(|answer| Rated {
            threads: answer.policy,
            pages: baseline,
            worth: rater.rate(answer, &untouched),
        })
        .collect();
    candidates.extend(pages.iter().map(|answer| Rated {
        threads: first.policy,
        pages: answer.policy,
        worth: rater.rate(first, &answer.placement),
    }));
    Some(Ranking {
        as_it_is,
        chosen: candidates.len().checked_sub(1)?,
        candidates,
    })
}

/// The model with the mappings that were rated already.
struct Rater<'m> {
    model: &'m Model<'m>,
    /// By whether threads are bound, and their PUs.
    seated: HashMap<(bool, Vec<LogicalPu>), Seated<'m>>,
}

impl<'m> Rater<'m> {
    fn new(model: &'m Model<'m>) -> Self {
        Self {
            model,
            seated: HashMap::new(),
        }
    }

    fn rate(&mut self, threads: &ThreadAnswer, placement: &Placement) -> Worth {
        let (model, mapping) = (self.model, &threads.mapped.mapping);
        let is_bound = threads.policy != ThreadPolicy::Os.name();
        let seated = self
            .seated
            .entry((is_bound, mapping.pu.clone()))
            .or_insert_with(|| match is_bound {
                true => model.seated(mapping),
                false => model.unbound(mapping),
            });
        seated.worth(placement)
    }
}
