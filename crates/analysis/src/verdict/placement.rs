//! Page placement: its gain over first touch with threads bound in order.

use std::collections::BTreeMap;

use numaloc_model::{MemoryPolicy, Placement, ThreadAccess, ThreadIdx, number};

use super::binding::uses_openmp;
use super::{
    EVENED, EVENED_COST, EVENED_NEGLIGIBLE, Evidence, LOCAL_GAIN, LOCAL_GAIN_NEGLIGIBLE,
    Likelihood, Measure, Verdict, Ways, percent,
};
use crate::objects::ObjectUse;
use crate::outlook::{Outlook, Scene, Way};
use crate::pages::{first_touch, most_used};
use crate::roles::groups;

/// Name of the fallback policy if no policies were evaluated.
const LOCALITY: &str = "locality";

/// One for each page policy; if the caller has none, every page on the node that uses it most.
pub(super) fn outlooks(evidence: &Evidence<'_>, scene: &Scene<'_>) -> Vec<Outlook> {
    let placed = |policy: &str, placement: &Placement| {
        let way = Way::Placed(policy.to_owned());
        scene.placed(way, evidence.assignment, placement)
    };
    let given = &evidence.candidates.placements;
    if given.is_empty() {
        let local = most_used(evidence.beyond, evidence.assignment);
        return vec![placed(LOCALITY, &local)];
    }
    given
        .iter()
        .map(|candidate| placed(&candidate.policy, &candidate.answer))
        .collect()
}

/// Bytes of the pages that the policy places on another node than first touch does.
fn moved_bytes(evidence: &Evidence<'_>, policy: &str) -> u64 {
    let usage = evidence.beyond;
    let own;
    let placement = match evidence
        .candidates
        .placements
        .iter()
        .find(|candidate| candidate.policy == policy)
    {
        Some(candidate) => &candidate.answer,
        None => {
            own = most_used(usage, evidence.assignment);
            &own
        }
    };
    let touched = first_touch(usage, evidence.assignment);
    let pages = usage.pages().iter().zip(&placement.node).zip(&touched.node);
    let moved = pages
        .filter(|((page, planned), today)| {
            planned.is_some() && planned != today && !usage.accesses(page).is_empty()
        })
        .count();
    moved as u64 * usage.page_size()
}

pub(super) fn verdict(evidence: &Evidence<'_>, ways: &Ways) -> Verdict {
    let verdict = |likelihood, reason| Verdict::plain(Measure::PagePlacement, likelihood, reason);
    if evidence.assignment.homes.len() < 2 {
        let reason = "the machine has one NUMA node: every page is local";
        return verdict(Likelihood::Unlikely, reason.to_owned());
    }
    let (Some(local), Some(balance)) = (ways.bound.local, ways.bound.balance) else {
        let reason = "page use was not observed in this profile";
        return verdict(Likelihood::CannotTell, reason.to_owned());
    };
    if let Some(why) = by_policy(evidence) {
        return verdict(Likelihood::Unlikely, why);
    }
    if let Some(why) = evidence.pages_do_not_matter() {
        return verdict(Likelihood::Unlikely, why);
    }
    let gain = |way: &Outlook| way.local.unwrap_or(0.0) - local;
    let evened = |way: &Outlook| match way.balance {
        Some(then) if gain(way) >= -EVENED_COST => then - balance,
        _ => 0.0,
    };
    // The first one of equals.
    let most = |of: &dyn Fn(&Outlook) -> f64| {
        let mut ways = ways.placed.iter().rev();
        let first = ways.next()?;
        Some(ways.fold(
            first,
            |best, way| if of(way) >= of(best) { way } else { best },
        ))
    };
    let (Some(nearest), Some(evenest)) = (most(&gain), most(&evened)) else {
        return verdict(
            Likelihood::CannotTell,
            "no page policy gave an answer".to_owned(),
        );
    };
    // The thread that gets the work decides which node is near, but not how balanced the nodes are.
    let handed_out = evidence.handed_out();
    let wins_locality = gain(nearest) >= LOCAL_GAIN && handed_out.is_none();
    let best = if !wins_locality && evened(evenest) >= EVENED_NEGLIGIBLE {
        evenest
    } else {
        nearest
    };
    let policy = best.way.policy().unwrap_or(LOCALITY);
    let figures = format!(
        "with threads bound in order, first touch makes {} of the accesses beyond private caches local (access balance {}), \
         pages by {policy} {} ({})",
        percent(local),
        number::fixed(balance, 2),
        percent(best.local.unwrap_or(0.0)),
        best.balance
            .map_or_else(|| "not observed".to_owned(), |b| number::fixed(b, 2))
    );
    let but = handed_out.map_or_else(String::new, |how| {
        format!(
            "; {how}: other threads may use these pages in another run, so that only the balance can be expected again"
        )
    });
    let moved = moved_bytes(evidence, policy);
    if gain(nearest) < LOCAL_GAIN_NEGLIGIBLE && evened(evenest) < EVENED_NEGLIGIBLE {
        let reason = format!("{figures}: first touch is already right");
        verdict(Likelihood::Unlikely, reason)
    } else if moved < evidence.private_cache_bytes {
        let reason = format!(
            "{figures}, but only {} pages ({} KiB) would move, less than one private cache holds",
            moved / evidence.beyond.page_size().max(1),
            moved >> 10
        );
        verdict(Likelihood::Unlikely, reason)
    } else if wins_locality || evened(evenest) >= EVENED {
        let option = format!("(--pages {policy})");
        Verdict {
            action: Some(match culprit(evidence, wins_locality) {
                Some(sentence) => format!("{sentence} {option}"),
                None => format!("Place pages {option}"),
            }),
            recommended: Some(best.way.clone()),
            ..verdict(Likelihood::Likely, figures + &but)
        }
    } else {
        verdict(Likelihood::CannotTell, figures + &but)
    }
}

/// Whether the program has chosen the nodes of the pages that matter: with memory policies of its own, on most of the
/// accesses.
pub(super) fn by_policy(evidence: &Evidence<'_>) -> Option<String> {
    let usage = evidence.beyond;
    let mut by_policy: BTreeMap<MemoryPolicy, u64> = BTreeMap::new();
    let mut all = 0;
    for page in usage.pages() {
        let accesses: u64 = usage.accesses(page).iter().map(ThreadAccess::total).sum();
        all += accesses;
        if let Some(policy) = page.policy {
            *by_policy.entry(policy).or_default() += accesses;
        }
    }
    let chosen: u64 = by_policy.values().sum();
    let (policy, _) = by_policy.iter().max_by_key(|(_, accesses)| **accesses)?;
    (chosen * 2 > all).then(|| {
        format!(
            "a memory policy that the program has set ({policy}) places the pages of {} of the accesses beyond private \
             caches, not first touch",
            percent(chosen as f64 / all as f64)
        )
    })
}

/// The object that loses most by first touch, or, if the gain is not locality, the one with most accesses from other
/// nodes; and the thread that touched most of it first.
pub(super) fn worst<'e>(
    evidence: &'e Evidence<'_>,
    locality: bool,
) -> Option<(&'e ObjectUse, ThreadIdx)> {
    let worth = |o: &ObjectUse| {
        let best = if locality { o.exclusivity } else { 1.0 };
        (best - o.local_share) * o.accesses() as f64
    };
    let worst = evidence
        .objects
        .iter()
        .filter(|o| o.threads > 1 && o.first_toucher.is_some() && worth(o) > 0.0)
        // Text and constants of programs are read from files: no thread initialises them.
        .filter(|o| {
            let object = o.object(evidence.profile);
            !object.is_some_and(|object| object.is_page_cached(o.writes))
        })
        .max_by(|a, b| worth(a).total_cmp(&worth(b)))?;
    Some((worst, worst.first_toucher?.0))
}

/// A thread in a sentence: `the main thread`, `thread 3 (worker)`.
pub(super) fn thread_words(evidence: &Evidence<'_>, thread: ThreadIdx) -> String {
    let name = evidence.profile.threads()[thread.index()].shown();
    match (thread, name) {
        (ThreadIdx(0), _) => "the main thread".to_owned(),
        (thread, Some(name)) => {
            format!("thread {} ({name}{})", thread.0, of_role(evidence, thread))
        }
        (thread, None) => format!("thread {}", thread.0),
    }
}

/// `, one of 8 io_thd_N`: the role of a thread whose name is not that of its role. OpenMP's workers are all one.
fn of_role(evidence: &Evidence<'_>, thread: ThreadIdx) -> String {
    if uses_openmp(evidence.profile) {
        return String::new();
    }
    let groups = groups(evidence.profile);
    let role = groups.iter().find(|group| group.threads.contains(&thread));
    let name = evidence.profile.threads()[thread.index()].shown();
    match role.filter(|role| Some(role.name.as_str()) != name.as_deref()) {
        Some(role) => format!(", one of {} {}", role.threads.len(), role.name),
        None => String::new(),
    }
}

/// A sentence that the user can act on.
fn culprit(evidence: &Evidence<'_>, locality: bool) -> Option<String> {
    let (worst, thread) = worst(evidence, locality)?;
    let name = match (
        worst.object(evidence.profile),
        worst.variable(evidence.profile),
    ) {
        (None, _) => "memory without a name".to_owned(),
        (Some(_), Some(variable)) => match &variable.source {
            Some(source) => format!("`{}` ({source})", variable.name),
            None => format!("`{}`", variable.name),
        },
        (Some(object), None) => {
            format!("{} `{}`", object.kind.name(), worst.label(evidence.profile))
        }
    };
    let who = thread_words(evidence, thread);
    Some(format!(
        "{}{} initialised {} of the {} pages of {name}, which {} threads then use: place {}",
        who[..1].to_uppercase(),
        &who[1..],
        percent(worst.first_touch_share()),
        worst.pages,
        worst.threads,
        if worst.pages == 1 { "it" } else { "them" },
    ))
}
