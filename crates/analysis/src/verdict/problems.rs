//! Problems: what is wrong, where, what to do and what that gives, most worth first. The short form of the verdicts,
//! for readers who ask nothing else.
//!
//! Three kinds are decided by seconds: contention for cache lines, the plan that the caller recommends, and changes of
//! the source that save more than the error of its model.
//! Binding is none where seconds are known: what the kernel's moves would cost is in no model. Where the caller has no
//! model of time, verdicts that are likely to help are problems, with what they gain in shares.

use std::collections::{BTreeMap, BTreeSet};

use numaloc_model::{CodePlace, SiteKind, SiteRow, ThreadIdx};

use super::problem::{Problem, Saves};
use super::{Evidence, Likelihood, Measure, Verdict, Ways, percent, placement, source, waiting};
use crate::objects::{ObjectUse, named_label};
use crate::outlook::{OfRanks, Outlook, Recommended, Way};
use crate::sites::place_label;

/// Page policies under which pages stay where first touch puts them.
const FIRST_TOUCH: &str = "first-touch";
/// Pages go to all nodes in turn, whoever uses them.
const INTERLEAVE: &str = "interleave";

/// Share of the run that is worth a change; what saves less is no problem.
const WORTHWHILE: f64 = 0.03;

/// The problems: those that are likely, then the others; most seconds first. Where changes were simulated, they are the
/// problems.
pub(super) fn problems(
    evidence: &Evidence<'_>,
    ways: &Ways,
    verdicts: &[Verdict],
    shared: Option<Problem>,
) -> Vec<Problem> {
    if evidence.candidates.is_simulated {
        let changes = evidence.candidates.changes.iter();
        return changes
            .map(|change| source::simulated(evidence, change, shared.as_ref()))
            .collect();
    }
    let mut found: Vec<Problem> = shared.into_iter().collect();
    found.extend(waiting::problem(evidence.profile, evidence.candidates));
    match &evidence.candidates.plan {
        Some(plan) if plan.saves() => found.push(of_plan(evidence, plan)),
        Some(_) => {}
        None => found.extend(of_verdicts(ways, verdicts)),
    }
    let changes = evidence.candidates.changes.iter();
    found.extend(changes.map(|change| source::problem(evidence, change)));
    let seconds = |problem: &Problem| problem.saves.map_or(0.0, |saves| saves.seconds);
    // Times of the run as it is differ, because the model of plans does not include contention.
    let whole = |problem: &Problem| problem.saves.map_or(0.0, |saves| saves.as_it_is);
    let run = found.iter().map(whole).fold(0.0, f64::max);
    found.retain(|problem| problem.saves.is_none() || seconds(problem) >= WORTHWHILE * run);
    found.sort_by(|a, b| {
        let by_likelihood = a.likelihood.cmp(&b.likelihood);
        by_likelihood.then(seconds(b).total_cmp(&seconds(a)))
    });
    found
}

/// What a mapping of ranks to hosts cures.
fn of_ranks(plan: &Recommended, ranks: &OfRanks) -> Problem {
    let [least, most] = ranks.between;
    Problem {
        measure: Measure::ThreadMapping,
        change: None,
        likelihood: Likelihood::Likely,
        what: ranks.what.clone(),
        place: None,
        remedy: "put ranks on their hosts with the plan below".to_owned(),
        saves: Some(Saves {
            as_it_is: plan.as_it_is,
            seconds: (plan.as_it_is - plan.with_plan).max(0.0),
            least,
            most,
        }),
        gain: None,
        basis: "modelled, by messages and links in phases; compare measures it".to_owned(),
    }
}

/// What the plan cures.
fn of_plan(evidence: &Evidence<'_>, plan: &Recommended) -> Problem {
    if let Some(ranks) = &plan.of_ranks {
        return of_ranks(plan, ranks);
    }
    let pages = plan.pages != FIRST_TOUCH;
    let worst = match pages {
        true => placement::worst(evidence, plan.pages != INTERLEAVE),
        false => None,
    };
    let (what, place, remedy) = match worst {
        Some((object, thread)) => (
            format!(
                "first touch: {} initialised memory that {} threads use",
                placement::thread_words(evidence, thread),
                object.threads
            ),
            Some(touched(evidence, object, thread)),
            match plan.pages.as_str() {
                INTERLEAVE => "spread its pages over all nodes with the plan below",
                _ => "place it where it is used with the plan below",
            },
        ),
        None => (
            by_time(plan),
            sharing_place(evidence),
            match pages {
                true => "put threads and pages in their places with the plan below",
                false => "bind threads with the plan below",
            },
        ),
    };
    let apart = |seconds: f64| (plan.as_it_is - seconds).max(0.0);
    let handed_out = evidence.handed_out().map_or_else(String::new, |_| {
        ", for a plan that does not depend on which thread gets which work".to_owned()
    });
    Problem {
        measure: match pages {
            true => Measure::PagePlacement,
            false => Measure::ThreadMapping,
        },
        change: None,
        likelihood: Likelihood::Likely,
        what,
        place,
        remedy: remedy.to_owned(),
        saves: Some(Saves {
            as_it_is: plan.as_it_is,
            seconds: apart(plan.with_plan),
            least: apart(plan.with_plan * (1.0 + plan.error)),
            most: apart(plan.with_plan / (1.0 + plan.error)),
        }),
        gain: None,
        basis: format!(
            "modelled, +- {:.0} %{handed_out}; compare measures it",
            100.0 * plan.error
        ),
    }
}

/// What is wrong by where the plan saves time.
fn by_time(plan: &Recommended) -> String {
    let [now, then] = plan.remote;
    match now - then >= 0.05 {
        true => format!(
            "remote memory: {} of the lines from memory come from another node; it could be {}",
            percent(now),
            percent(then)
        ),
        false => format!("uneven load: {} decides the time", plan.mostly),
    }
}

/// The object and the code that only its first toucher runs: what initialises it.
fn touched(evidence: &Evidence<'_>, object: &ObjectUse, toucher: ThreadIdx) -> String {
    let label = match object.object {
        Some(_) => object.label(evidence.profile),
        None => "memory without a name".to_owned(),
    };
    let mut stores: BTreeMap<&CodePlace, (u64, BTreeSet<ThreadIdx>)> = BTreeMap::new();
    let rows = evidence.profile.sites().iter();
    let is_meant = |row: &SiteRow| match object.named() {
        Some(named) => evidence.profile.named_at(row) == Some(named),
        None => row.object.is_none(),
    };
    for row in rows.filter(|row| row.kind == SiteKind::Store && is_meant(row)) {
        let (amount, threads) = stores.entry(&row.here).or_default();
        *amount += row.amount;
        threads.insert(row.thread);
    }
    let alone = |(place, (amount, threads)): (&'_ CodePlace, (u64, BTreeSet<ThreadIdx>))| {
        let only = threads.len() == 1 && threads.contains(&toucher) && place.is_known();
        only.then(|| (amount, place_label(place)))
    };
    let of_toucher = stores.into_iter().filter_map(alone);
    let first = of_toucher.max_by_key(|(amount, _)| *amount);
    let pages =
        numaloc_model::number::plural(usize::try_from(object.pages).unwrap_or(usize::MAX), "page");
    match first {
        Some((_, code)) => format!("{label}, {pages}, first written in {code}"),
        None => format!("{label}, {pages}"),
    }
}

/// Where most communication is, or most accesses to memory of other threads.
fn sharing_place(evidence: &Evidence<'_>) -> Option<String> {
    let accesses = evidence.sites.accesses.iter();
    let mut remote = accesses.filter(|one| one.place.is_known() && one.to_others > 0);
    let remote = remote.next().map(|one| {
        let label = |named| format!("{}, ", named_label(evidence.profile, named));
        let name = one.memory.map_or_else(String::new, label);
        let verb = if one.stores { "stored" } else { "loaded" };
        format!("{name}{verb} in {}", place_label(&one.place))
    });
    let exchange = || {
        let mut exchanges = evidence.sites.exchanges.iter();
        let most = exchanges.find(|one| one.read.is_known())?;
        let (write, read) = (place_label(&most.write), place_label(&most.read));
        Some(format!("written in {write}, read in {read}"))
    };
    remote.or_else(exchange)
}

/// Verdicts without times.
fn of_verdicts(ways: &Ways, verdicts: &[Verdict]) -> Vec<Problem> {
    let likely = |verdict: &&Verdict| {
        verdict.measure != Measure::SharedLines && verdict.likelihood == Likelihood::Likely
    };
    let mut found: Vec<Problem> = verdicts
        .iter()
        .filter(likely)
        .map(|verdict| by_shares(ways, verdict))
        .collect();
    // Mapping and placement say which threads and pages; binding is part of both.
    found.reverse();
    found
}

/// A verdict as a problem, with what its way gains in shares.
fn by_shares(ways: &Ways, verdict: &Verdict) -> Problem {
    let what = match verdict.measure {
        Measure::BindThreads => {
            "threads are not bound: each move takes them away from their memory"
        }
        Measure::ThreadMapping => "threads that share data are on different nodes",
        Measure::CongestionAware => "communication at the same time meets on one node",
        Measure::PagePlacement => "pages are on other nodes than the threads that use them",
        Measure::SharedLines => "threads contend for cache lines",
    };
    let all = ways.mapped.iter().chain(&ways.placed).chain([&ways.bound]);
    let mut all = all.filter(|outlook| Some(&outlook.way) == verdict.recommended.as_ref());
    let (now, then) = match verdict.measure {
        Measure::BindThreads => (&ways.free, Some(&ways.bound)),
        _ => (&ways.bound, all.next()),
    };
    Problem {
        measure: verdict.measure,
        change: None,
        likelihood: verdict.likelihood,
        what: what.to_owned(),
        place: None,
        remedy: remedy(verdict),
        saves: None,
        gain: then.and_then(|then| shares(now, then)),
        basis: "by shares of accesses and communication, not in seconds".to_owned(),
    }
}

/// What the verdict recommends, without the options of the plan that follows.
fn remedy(verdict: &Verdict) -> String {
    match (verdict.measure, &verdict.recommended) {
        (Measure::BindThreads, Some(Way::Bound)) => {
            "bind threads in the order of their creation with the plan below".to_owned()
        }
        (Measure::PagePlacement, _) => "place pages with the plan below".to_owned(),
        _ => "put threads in their places with the plan below".to_owned(),
    }
}

/// The shares that differ most between two ways.
fn shares(now: &Outlook, then: &Outlook) -> Option<String> {
    let mut gains = Vec::new();
    if let (Some(now), Some(then)) = (now.local, then.local)
        && then > now
    {
        let (now, then) = (percent(now), percent(then));
        gains.push(format!("local accesses {now} -> {then}"));
    }
    if now.remote > then.remote {
        let (now, then) = (percent(now.remote), percent(then.remote));
        gains.push(format!("communication between nodes {now} -> {then}"));
    }
    (!gains.is_empty()).then(|| gains.join(", "))
}
