//! `plan --choose simulated`: makes a plan by each combination of policies, simulates them, and chooses one.
//!
//! Each plan is simulated as it would be written. Those that are at most [`CLOSE`] slower than the fastest are simulated
//! again with the presets of the model at both ends of their ranges, which gives the uncertainty of their distance from
//! the fastest. The chosen plan is the simplest of those that do not differ from the fastest by more than it.

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
use crate::simulation::sensitivity::{self, Uncertainty, Variant};
use crate::simulation::{self, Case, Mapped, Target};
use crate::ui::Ui;

/// Thread policies of the candidates without `--threads`.
const THREADS: [&str; 7] = [
    "packed",
    "scatter",
    "balance",
    "tree-match",
    "deloc",
    "numaloc",
    JOINT,
];
/// Page policies of the candidates without `--pages`.
const PAGES: [&str; 5] = ["first-touch", "interleave", "locality", "balanced", "mixed"];
/// Plans that are slower than the fastest by a larger share are not simulated with other presets: they are slower.
pub(super) const CLOSE: f64 = 0.25;
/// Simulations of the run without a plan, each with its own random choices; their median counts.
const DRAWS: u64 = 5;

/// A plan that may be chosen.
pub(super) struct Candidate {
    pub assembled: Assembled,
    /// Position in the order of simplicity.
    rank: (usize, usize),
    pub time: u64,
    /// Time over that of the fastest plan.
    pub ratio: f64,
    /// Of the ratio, with the preset that causes it; `None` if the plan was not simulated with other presets.
    pub uncertainty: Option<(f64, String)>,
    pub is_different: bool,
}

impl Candidate {
    /// Its policies.
    pub fn names(&self) -> (&str, &str) {
        let provenance = &self.assembled.plan.provenance;
        (&provenance.thread_policy, &provenance.page_policy)
    }
}

/// The run without a plan, compared with the fastest plan.
pub(super) struct WithoutPlan {
    pub time: u64,
    pub ratio: f64,
    pub uncertainty: Option<(f64, String)>,
    pub is_different: bool,
}

/// The candidates, the fastest first, and the chosen one.
pub(super) struct Chosen {
    pub target: Target,
    pub candidates: Vec<Candidate>,
    /// Index of the chosen candidate.
    pub at: usize,
    pub without: WithoutPlan,
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
    let traces = Traces::load(&traces, &profile, &targets, ui)?;
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
    let compared = simulations.compare(&cases, plans.len())?;
    Ok(compared.choose(plans, target))
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
fn rank(threads: &str, pages: &str) -> (usize, usize) {
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
) -> Result<Vec<(Assembled, (usize, usize))>, CliError> {
    let failed = |error| policies::failed(&args.profile, error);
    let scope = Scope {
        layer: args.layer,
        exclude_helpers: args.exclude_helpers,
    };
    let subject = Subject::new(Cow::Borrowed(profile), &scope).map_err(failed)?;
    let options = args.options();
    let mut plans: Vec<(Assembled, (usize, usize))> = Vec::new();
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
    let mut distinct: Vec<(Assembled, (usize, usize))> = Vec::new();
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
    }
}

/// Where and on what candidates are simulated.
struct Simulations<'a> {
    target: &'a Target,
    traces: &'a Traces,
    filter_bytes: u64,
    ui: &'a Ui,
}

/// Times of cases, compared with the fastest plan.
struct Compared {
    times: Vec<u64>,
    /// By case; `None` if it was not simulated with other presets.
    uncertainty: Vec<Option<(f64, String)>>,
    /// The run without a plan whose time is the median.
    without: usize,
    simulations: usize,
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
            })
            .collect();
        runner.run(&jobs, "time", |outcome: Outcome| outcome.time)
    }

    /// Simulates all cases, of which the first `plans` are plans and the others draws of the run without one; and those
    /// that are close to the fastest plan with presets at both ends of their ranges.
    fn compare(&self, cases: &[Case], plans: usize) -> Result<Compared, CliError> {
        let jobs: Vec<_> = cases
            .iter()
            .map(|case| (&self.target.machine, case))
            .collect();
        let times = self.run(&jobs)?;
        let mut draws: Vec<usize> = (plans..cases.len()).collect();
        draws.sort_by_key(|&at| times[at]);
        let without = draws[(draws.len() - 1) / 2];
        let fastest = (0..plans).min_by_key(|&at| times[at]).unwrap_or(0);
        let limit = times[fastest] as f64 * (1.0 + CLOSE);
        let close: Vec<usize> = (0..plans)
            .chain([without])
            .filter(|&at| times[at] as f64 <= limit)
            .collect();
        let variants = sensitivity::variants(&self.target.machine);
        let jobs: Vec<_> = close
            .iter()
            .flat_map(|&at| {
                variants
                    .iter()
                    .map(move |variant| (&variant.machine, &cases[at]))
            })
            .collect();
        let varied = self.run(&jobs)?;
        let of = |at: usize| {
            let place = close.iter().position(|&other| other == at)?;
            varied.chunks(variants.len()).nth(place)
        };
        let base = of(fastest).unwrap_or_default();
        let uncertainty = (0..cases.len()).map(|at| {
            let pairs = of(at)?.iter().copied().zip(base.iter().copied());
            let found = Uncertainty::of((times[at], times[fastest]), pairs);
            Some((found.change, preset(&variants[found.by])))
        });
        Ok(Compared {
            uncertainty: uncertainty.collect(),
            without,
            simulations: cases.len() + varied.len(),
            times,
        })
    }
}

/// A variant in words.
fn preset(variant: &Variant) -> String {
    format!("{} {}", variant.preset, variant.value)
}

impl Compared {
    /// The candidates, the fastest first, equally fast ones by simplicity; and the simplest of those that do not differ
    /// from the fastest.
    fn choose(&self, plans: Vec<(Assembled, (usize, usize))>, target: Target) -> Chosen {
        let fastest = self.times[..plans.len()].iter().copied().min().unwrap_or(0);
        let compared = |at: usize| {
            let ratio = self.times[at] as f64 / fastest.max(1) as f64;
            let uncertainty = self.uncertainty[at].clone();
            let is_different = match &uncertainty {
                Some((change, _)) => ratio - 1.0 > *change,
                None => true,
            };
            (ratio, uncertainty, is_different)
        };
        let mut candidates: Vec<Candidate> = plans
            .into_iter()
            .enumerate()
            .map(|(at, (assembled, rank))| {
                let (ratio, uncertainty, is_different) = compared(at);
                Candidate {
                    assembled,
                    rank,
                    time: self.times[at],
                    ratio,
                    uncertainty,
                    is_different,
                }
            })
            .collect();
        candidates.sort_by_key(|candidate| (candidate.time, candidate.rank));
        let simplest = (0..candidates.len())
            .filter(|&at| !candidates[at].is_different)
            .min_by_key(|&at| candidates[at].rank);
        let (ratio, uncertainty, is_different) = compared(self.without);
        Chosen {
            target,
            at: simplest.unwrap_or(0),
            candidates,
            without: WithoutPlan {
                time: self.times[self.without],
                ratio,
                uncertainty,
                is_different,
            },
            simulations: self.simulations,
        }
    }
}
