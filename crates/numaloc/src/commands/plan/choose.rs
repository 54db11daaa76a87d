//! `plan --choose simulated`: makes a plan by each combination of policies, simulates them, and chooses one.
//!
//! Each plan is simulated as it would be written. The fastest, the next one, and the plans that are simpler than the
//! fastest and at most [`CLOSE`] slower are simulated again with the presets of the model at both ends of their ranges,
//! which gives the uncertainty of their distance from the fastest. The chosen plan is the simplest of those that do not
//! differ from the fastest by more than it. Other plans cannot be chosen, so their uncertainty is not needed.

use std::borrow::Cow;

use numaloc_formats::profile::{Parts, read_parts};
use numaloc_model::Profile;
use numaloc_placement::Assembled;
use numaloc_plan::registry::{self, ALL, JOINT, Kind, Place};
use numaloc_plan::{Choice, PlanRequest, Scope, Subject, ThreadPolicy, Unobserved};
use numaloc_sim::{Outcome, Pages, Parameters};

use super::Args;
use crate::commands::policies;
use crate::error::CliError;
use crate::simulation::loading::Traces;
use crate::simulation::planned::{self, Homes, Unloaded};
use crate::simulation::running::{Job, Runner};
use crate::simulation::saved::Saved;
use crate::simulation::sensitivity::{self, Uncertainty};
use crate::simulation::{self, Case, Mapped, Target};
use crate::ui::Ui;

/// Thread policies of the candidates without `--threads`.
const THREADS: [&str; 7] = [
    "packed",
    "scatter",
    "balance-load",
    "tree-match",
    "deloc",
    "numaloc",
    JOINT,
];
/// Page policies of the candidates without `--pages`.
const PAGES: [&str; 5] = ["first-touch", "interleave", "locality", "balanced", "mixed"];
/// Plans that are slower than the fastest by a larger share count as slower without simulations with other presets.
pub(super) const CLOSE: f64 = 0.25;
/// Simulations of the run without a plan, each with its own random choices; their median counts.
const DRAWS: u64 = 5;

/// A time compared with that of the fastest plan.
#[derive(Clone)]
pub(super) struct Compared {
    /// Picoseconds.
    pub time: u64,
    /// Time over that of the fastest plan.
    pub ratio: f64,
    /// Of the ratio, with the preset that causes it; `None` if the case was not simulated with other presets.
    pub uncertainty: Option<(f64, String)>,
}

impl Compared {
    /// Whether it is slower than the fastest plan by more than the uncertainty; `None` if that is unknown.
    pub fn is_different(&self) -> Option<bool> {
        match &self.uncertainty {
            Some((change, _)) => Some((self.ratio - 1.0).abs() > *change),
            None if self.ratio > 1.0 + CLOSE => Some(true),
            None => None,
        }
    }
}

/// A plan that may be chosen.
pub(super) struct Candidate {
    pub assembled: Assembled,
    /// Position in the order of simplicity.
    rank: Rank,
    pub compared: Compared,
}

/// Position of a plan in the order of simplicity: by its page policy, then by its thread policy.
type Rank = (usize, usize);

impl Candidate {
    /// Its policies.
    pub fn names(&self) -> (&str, &str) {
        let provenance = &self.assembled.plan.provenance;
        (&provenance.thread_policy, &provenance.page_policy)
    }
}

/// The candidates, the fastest first, and the chosen one.
pub(super) struct Chosen {
    pub target: Target,
    pub candidates: Vec<Candidate>,
    /// Index of the chosen candidate.
    pub at: usize,
    /// The run without a plan.
    pub without: Compared,
    pub simulations: usize,
}

/// Simulates the candidates and chooses one.
pub(super) fn choose(args: &Args, ui: &Ui) -> Result<Chosen, CliError> {
    let (threads, pages) = (thread_policies(args)?, page_policies(args)?);
    let target = target(args)?;
    let profile = read_parts(&args.profile, Parts { page_slices: true })?;
    args.remark(&profile, ui);
    let targets = [target];
    let (traces, filter) = simulation::recorded(&args.profile, &profile, &targets, ui)?;
    let plans = plans(args, &profile, &targets[0], &threads, &pages)?;
    let traces = Traces::load(&traces, &profile, &targets, Vec::new(), ui)?;
    let [target] = targets;
    let trace = traces.of(&target);
    let cases: Vec<Case> = plans
        .iter()
        .filter_map(|(assembled, _)| planned::of_plan(&assembled.plan, 0, &profile))
        .chain((0..DRAWS).map(|draw| without_plan(args.seed.wrapping_add(draw))))
        .map(|case| case.on_pages_of(trace, &profile))
        .collect();
    if cases.len() < plans.len() + DRAWS as usize {
        return Err(CliError::tool("cannot simulate a plan without threads"));
    }
    let simulations = Simulations {
        target: &target,
        traces: &traces,
        filter_bytes: filter.bytes,
        ui,
    };
    let ranks: Vec<Rank> = plans.iter().map(|(_, rank)| *rank).collect();
    let (compared, number) = simulations.compare(&cases, &ranks)?;
    Ok(decide(plans, compared, target, number))
}

/// The machine, which must have hardware figures.
fn target(args: &Args) -> Result<Target, CliError> {
    let topology = args.machine()?;
    let is_this = args.machine == "this";
    Target::new(&args.machine, topology, Parameters::default()).map_err(|error| match is_this {
        true => error.hint("`numaloc machines calibrate` measures this machine and writes a machine file for --machine"),
        false => error,
    })
}

/// A policy of a candidate's threads: one of the registry, or the joint policy.
enum Threads {
    Of(ThreadPolicy),
    Joint,
}

impl Threads {
    fn name(&self) -> &'static str {
        match self {
            Self::Of(policy) => policy.name(),
            Self::Joint => JOINT,
        }
    }
}

fn names<'a>(given: &'a Option<String>, standard: &[&'a str]) -> Vec<&'a str> {
    match given {
        Some(names) => names.split(',').collect(),
        None => standard.to_vec(),
    }
}

fn thread_policies(args: &Args) -> Result<Vec<Threads>, CliError> {
    let mut policies: Vec<Threads> = Vec::new();
    for name in names(&args.threads, &THREADS) {
        if name == ThreadPolicy::Os.name() {
            return Err(CliError::usage(
                "cannot choose among plans that leave threads to the operating system",
            )
            .hint("leave `os` out: the run without a plan is always simulated, for comparison"));
        }
        let named = match name {
            JOINT => vec![Threads::Joint],
            _ => registry::threads(name, Place::Profile)?
                .into_iter()
                .map(Threads::Of)
                .collect(),
        };
        for policy in named {
            if policies.iter().all(|known| known.name() != policy.name()) {
                policies.push(policy);
            }
        }
    }
    Ok(policies)
}

type PagePolicies = Vec<&'static dyn numaloc_placement::PlacementPolicy>;

/// Empty if only [`JOINT`] is given.
fn page_policies(args: &Args) -> Result<PagePolicies, CliError> {
    let mut policies = PagePolicies::new();
    for name in names(&args.pages, &PAGES) {
        if name == JOINT {
            continue;
        }
        for policy in registry::pages(name, Place::Profile)? {
            if policies.iter().all(|known| known.name() != policy.name()) {
                policies.push(policy);
            }
        }
    }
    Ok(policies)
}

/// Position of a plan in the order of simplicity: by its page policy, then by its thread policy, each in the order of
/// the registry, which lists the simplest first. `joint` is last.
fn rank(threads: &str, pages: &str) -> Rank {
    let at = |kind, name: &str| {
        let entries = registry::entries(kind, Place::Profile);
        let found = entries.iter().position(|entry| entry.name == name);
        found.unwrap_or(entries.len())
    };
    (at(Kind::Pages, pages), at(Kind::Threads, threads))
}

/// The plan of each combination, with its place in the order of simplicity. Equal plans are there once, under the
/// simplest policies.
fn plans(
    args: &Args,
    profile: &Profile,
    target: &Target,
    threads: &[Threads],
    pages: &PagePolicies,
) -> Result<Vec<(Assembled, Rank)>, CliError> {
    let failed = |error| policies::failed(&args.profile, error);
    let scope = Scope {
        layer: args.layer,
        exclude_helpers: args.exclude_helpers,
    };
    let subject = Subject::new(Cow::Borrowed(profile), &scope).map_err(failed)?;
    let options = args.options();
    let mut plans: Vec<(Assembled, Rank)> = Vec::new();
    for policy in threads {
        let choice = match policy {
            Threads::Of(policy) => Choice::Separate {
                threads: vec![*policy],
                pages: pages.clone(),
            },
            Threads::Joint => Choice::Joint,
        };
        let request = PlanRequest {
            subject: &subject,
            machine: &target.topology,
            choice: &choice,
            options: &options,
        };
        let planned = numaloc_plan::plan(request, &Unobserved).map_err(failed)?;
        let wanted = |name: &str| match policy {
            Threads::Of(_) => pages.iter().any(|policy| policy.name() == name),
            Threads::Joint => name == JOINT,
        };
        for answer in planned.pages().iter().filter(|row| wanted(row.policy)) {
            let mut assembled = planned.assemble_with(answer);
            let parameters = &mut assembled.plan.provenance.parameters;
            parameters.push(("choose".to_owned(), "simulated".to_owned()));
            plans.push((assembled, rank(policy.name(), answer.policy)));
        }
    }
    if plans.is_empty() {
        return Err(
            CliError::usage("no plan to choose from: --pages names only `joint`")
                .hint(format!("--threads {JOINT}, or --pages {ALL}")),
        );
    }
    plans.sort_by_key(|(_, rank)| *rank);
    let mut distinct: Vec<(Assembled, Rank)> = Vec::new();
    for (assembled, rank) in plans {
        let is_same = |other: &Assembled| {
            let (a, b) = (&other.plan, &assembled.plan);
            (&a.threads, &a.objects, &a.pages) == (&b.threads, &b.objects, &b.pages)
        };
        if !distinct.iter().any(|(other, _)| is_same(other)) {
            distinct.push((assembled, rank));
        }
    }
    Ok(distinct)
}

/// Threads and pages left to the operating system.
fn without_plan(seed: u64) -> Unloaded {
    Unloaded {
        target: 0,
        threads: ThreadPolicy::Os.name().to_owned(),
        pages: "first-touch".to_owned(),
        mapped: Mapped::Os { seed },
        homes: Homes::Acting(Pages::FirstTouch),
        schedule: Vec::new(),
    }
}

/// Where and on what candidates are simulated.
struct Simulations<'a> {
    target: &'a Target,
    traces: &'a Traces,
    filter_bytes: u64,
    ui: &'a Ui,
}

impl Simulations<'_> {
    fn run(&self, jobs: &[(&numaloc_sim::Machine, &Case)]) -> Result<Vec<u64>, CliError> {
        let saved = Saved::open(None)?;
        let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let runner = Runner {
            workers,
            saved: &saved,
            ui: self.ui,
        };
        let jobs: Vec<Job<'_>> = jobs
            .iter()
            .map(|&(machine, case)| Job {
                machine,
                trace: self.traces.of(self.target),
                fingerprint: 0,
                case,
                filter_bytes: self.filter_bytes,
                sample: None,
            })
            .collect();
        runner.run(&jobs, "time", |outcome: Outcome| outcome.time)
    }

    /// Simulates all cases, of which the first are plans with these ranks and the others draws of the run without one;
    /// and those whose uncertainty is needed with presets at both ends of their ranges. Returns each plan and then the
    /// median draw, compared with the fastest plan, and the number of simulations.
    fn compare(&self, cases: &[Case], ranks: &[Rank]) -> Result<(Vec<Compared>, usize), CliError> {
        let jobs: Vec<_> = cases
            .iter()
            .map(|case| (&self.target.machine, case))
            .collect();
        let times = self.run(&jobs)?;
        let mut draws: Vec<usize> = (ranks.len()..cases.len()).collect();
        draws.sort_by_key(|&at| times[at]);
        let without = draws[(draws.len() - 1) / 2];
        let varied = needed(&times, ranks, without);
        let variants = sensitivity::variants(&self.target.machine);
        let jobs: Vec<_> = varied
            .iter()
            .flat_map(|&at| {
                variants
                    .iter()
                    .map(move |variant| (&variant.machine, &cases[at]))
            })
            .collect();
        let of_variants = self.run(&jobs)?;
        let of = |at: usize| {
            let place = varied.iter().position(|&other| other == at)?;
            of_variants.chunks(variants.len()).nth(place)
        };
        // The fastest is always among them, as the first.
        let fastest = varied[0];
        let compared = (0..ranks.len()).chain([without]).map(|at| Compared {
            time: times[at],
            ratio: times[at] as f64 / times[fastest].max(1) as f64,
            uncertainty: of(at).zip(of(fastest)).map(|(row, best)| {
                let pairs = row.iter().copied().zip(best.iter().copied());
                let found = Uncertainty::of((times[at], times[fastest]), pairs);
                let by = &variants[found.by];
                (found.change, format!("{} {}", by.preset, by.value))
            }),
        });
        Ok((compared.collect(), cases.len() + of_variants.len()))
    }
}

/// The cases whose uncertainty is needed: the fastest plan, the next one, the run without a plan, and the plans that
/// are simpler than the fastest and close to it.
fn needed(times: &[u64], ranks: &[Rank], without: usize) -> Vec<usize> {
    let mut by_time: Vec<usize> = (0..ranks.len()).collect();
    by_time.sort_by_key(|&at| (times[at], ranks[at]));
    let fastest = by_time[0];
    let limit = times[fastest] as f64 * (1.0 + CLOSE);
    let simpler = by_time.iter().copied().skip(2);
    let simpler = simpler.filter(|&at| ranks[at] < ranks[fastest] && times[at] as f64 <= limit);
    let first = by_time.iter().copied().take(2);
    first.chain(simpler).chain([without]).collect()
}

/// The candidates, the fastest first, equally fast ones by simplicity; and the simplest of those that do not differ
/// from the fastest. `compared` has an entry for each plan, and the last is the run without one.
fn decide(
    plans: Vec<(Assembled, Rank)>,
    mut compared: Vec<Compared>,
    target: Target,
    simulations: usize,
) -> Chosen {
    let without = compared.split_off(plans.len()).remove(0);
    let mut candidates: Vec<Candidate> = plans
        .into_iter()
        .zip(compared)
        .map(|((assembled, rank), compared)| Candidate {
            assembled,
            rank,
            compared,
        })
        .collect();
    candidates.sort_by_key(|candidate| (candidate.compared.time, candidate.rank));
    let simplest = (0..candidates.len())
        .filter(|&at| candidates[at].compared.is_different() == Some(false))
        .min_by_key(|&at| candidates[at].rank);
    Chosen {
        target,
        at: simplest.unwrap_or(0),
        candidates,
        without,
        simulations,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fastest is the third in the order of simplicity; the first is close, the second is not; the fourth is next.
    #[test]
    fn uncertainty_is_needed_for_the_first_two_and_for_simpler_plans_that_are_close() {
        let times = [110, 140, 100, 105, 108, 130];
        let ranks = [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)];
        assert_eq!(needed(&times, &ranks, 5), [2, 3, 0, 5]);
    }

    #[test]
    fn a_difference_needs_more_than_the_uncertainty_and_is_unknown_without_one() {
        let compared = |ratio, change: Option<f64>| Compared {
            time: 0,
            ratio,
            uncertainty: change.map(|change| (change, String::new())),
        };
        assert_eq!(compared(1.0, Some(0.0)).is_different(), Some(false));
        assert_eq!(compared(1.04, Some(0.05)).is_different(), Some(false));
        assert_eq!(compared(1.06, Some(0.05)).is_different(), Some(true));
        assert_eq!(compared(0.9, Some(0.05)).is_different(), Some(true));
        assert_eq!(compared(1.06, None).is_different(), None);
        assert_eq!(compared(1.3, None).is_different(), Some(true));
    }

    #[test]
    fn plans_that_place_no_pages_themselves_are_the_simplest() {
        assert!(rank("numaloc", "first-touch") < rank("packed", "interleave"));
        assert!(rank("packed", "locality") < rank("deloc", "locality"));
        assert!(rank("deloc", "marathe") < rank("joint", "joint"));
    }
}
