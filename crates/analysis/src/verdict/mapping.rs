//! Thread mapping: its gain over threads bound in the order of their creation.

use numaloc_model::{Layer, number};

use super::{
    Evidence, FALSE_SHARE, LOCAL_GAIN, LOCAL_GAIN_NEGLIGIBLE, Likelihood, Measure, REMOTE_GAIN,
    REMOTE_GAIN_NEGLIGIBLE, Verdict, Ways, lower_first, percent,
};
use crate::assignment::{Goal, NodeAssignment, assign};
use crate::communication::undirected;
use crate::mapping_cost::{imbalance, remote_share};
use crate::outlook::{Outlook, Scene, Way};

/// Name of our own grouping if no policies were evaluated: that of the nearest policy.
const GROUPED: &str = "numaloc";

/// Ratio of the busiest thread's communication to the mean below which communication is uniform.
const UNIFORM: f64 = 1.5;

/// One for each thread policy; our own grouping if the caller has none.
pub(super) fn outlooks(evidence: &Evidence<'_>, scene: &Scene<'_>) -> Vec<Outlook> {
    let given = &evidence.candidates.mappings;
    if given.is_empty() {
        let grouped = grouping(evidence, scene, Goal::Together);
        return vec![scene.mapped(Way::Mapped(GROUPED.to_owned()), &grouped)];
    }
    given
        .iter()
        .map(|candidate| scene.mapped(Way::Mapped(candidate.policy.clone()), &candidate.answer))
        .collect()
}

/// Threads grouped (or separated) by communication alone.
fn grouping(evidence: &Evidence<'_>, scene: &Scene<'_>, goal: Goal) -> NodeAssignment {
    let affinity = undirected(evidence.events, scene.layer);
    let found = assign(&affinity, evidence.assignment.homes.len().max(1), goal);
    NodeAssignment {
        nodes: evidence.assignment.nodes,
        homes: evidence.assignment.homes.clone(),
        of_thread: found
            .of_thread
            .iter()
            .map(|at| evidence.assignment.homes[at.index()])
            .collect(),
    }
}

/// Whether communication is uniform: no thread has more than half above the mean, and, with room for two threads per
/// node, neither the best nor the worst grouping found differs from an arbitrary mapping.
fn is_uniform(evidence: &Evidence<'_>, scene: &Scene<'_>) -> bool {
    let threads = evidence.events.threads();
    if threads <= evidence.assignment.homes.len() || threads < 3 {
        return false;
    }
    let mut loads = vec![0.0; threads];
    for (src, dst, amount) in evidence.events.cells() {
        loads[src] += amount;
        loads[dst] += amount;
    }
    let share = |goal| {
        remote_share(
            evidence.events,
            scene.layer,
            &grouping(evidence, scene, goal),
        )
    };
    let arbitrary = scene.arbitrary();
    imbalance(&loads) < UNIFORM
        && arbitrary - share(Goal::Together) < REMOTE_GAIN_NEGLIGIBLE
        && share(Goal::Apart) - arbitrary < REMOTE_GAIN_NEGLIGIBLE
}

pub(super) fn verdict(evidence: &Evidence<'_>, scene: &Scene<'_>, ways: &Ways) -> Verdict {
    let verdict = |likelihood, reason| Verdict::plain(Measure::ThreadMapping, likelihood, reason);
    let c = evidence.communication;
    let nodes = evidence.assignment.homes.len();
    if nodes < 2 {
        let reason = "the machine has one NUMA node: no communication can be remote";
        return verdict(Likelihood::Unlikely, reason.to_owned());
    }
    let Some(best) = best(evidence, ways) else {
        return verdict(
            Likelihood::CannotTell,
            "no thread policy gave an answer".to_owned(),
        );
    };
    let figures = figures(&ways.bound, best.outlook, nodes);
    let volume = evidence.volume();
    let wins_talk = evidence.communicates_enough()
        && best.communication >= REMOTE_GAIN
        && best.touch > -LOCAL_GAIN_NEGLIGIBLE;
    let wins_touch = best.touch >= LOCAL_GAIN && best.communication > -REMOTE_GAIN_NEGLIGIBLE;
    if wins_talk || wins_touch {
        let policy = policy_of(best.outlook);
        let action = format!("Put threads that share data on one node (--threads {policy})");
        return Verdict {
            action: Some(match false_sharing(evidence) {
                Some(repair) => format!("{repair}. Then {}", lower_first(&action)),
                None => action,
            }),
            recommended: Some(best.outlook.way.clone()),
            ..verdict(Likelihood::Likely, format!("{volume}; {figures}"))
        };
    }
    let wins_nothing =
        best.communication < REMOTE_GAIN_NEGLIGIBLE && best.touch < LOCAL_GAIN_NEGLIGIBLE;
    if c.events == 0.0 && best.touch < LOCAL_GAIN_NEGLIGIBLE {
        let reason = "no communication was observed";
        verdict(Likelihood::Unlikely, reason.to_owned())
    } else if evidence.communicates_too_little() && best.touch < LOCAL_GAIN_NEGLIGIBLE {
        let reason = format!("{volume}: too little to matter, wherever the threads are");
        verdict(Likelihood::Unlikely, reason)
    } else if wins_nothing && is_uniform(evidence, scene) {
        let uniform = format!(
            "{figures}: communication is uniform (heterogeneity {})",
            number::fixed(c.heterogeneity, 0)
        );
        verdict(Likelihood::Unlikely, uniform)
    } else if wins_nothing && ways.bound.remote >= 1.0 {
        let alone = format!("{figures}: every thread has a node of its own");
        verdict(Likelihood::Unlikely, alone)
    } else if wins_nothing {
        let reason = format!("{figures}: no mapping tried is better than the order of creation");
        verdict(Likelihood::Unlikely, reason)
    } else {
        Verdict {
            action: false_sharing(evidence),
            ..verdict(Likelihood::CannotTell, format!("{volume}; {figures}"))
        }
    }
}

/// A mapped way and what it gains over threads bound in the order of their creation.
struct Gain<'a> {
    outlook: &'a Outlook,
    /// Share of communication that is no longer between nodes; 0 if communication does not matter.
    communication: f64,
    /// Share of accesses beyond private caches that first touch makes local in addition; 0 if pages do not matter.
    touch: f64,
}

/// The way with the largest gain, the first one of equals: policies are in order of recommendation.
fn best<'a>(evidence: &Evidence<'_>, ways: &'a Ways) -> Option<Gain<'a>> {
    let bound = &ways.bound;
    let pages_matter = evidence.pages_do_not_matter().is_none();
    let communication_matters =
        evidence.communication.events > 0.0 && !evidence.communicates_too_little();
    let gain = |outlook: &'a Outlook| Gain {
        outlook,
        communication: if communication_matters {
            bound.remote - outlook.remote
        } else {
            0.0
        },
        touch: match (bound.local, outlook.local) {
            (Some(today), Some(then)) if pages_matter => then - today,
            _ => 0.0,
        },
    };
    let sum = |gain: &Gain<'_>| gain.communication + gain.touch;
    let gains = ways.mapped.iter().rev().map(gain);
    gains.max_by(|a, b| sum(a).total_cmp(&sum(b)))
}

/// The policy of a way, for messages.
fn policy_of(outlook: &Outlook) -> &str {
    outlook.way.policy().unwrap_or(GROUPED)
}

/// Remote communication and local accesses of the bound way and of `best`.
fn figures(bound: &Outlook, best: &Outlook, nodes: usize) -> String {
    let policy = policy_of(best);
    let mut figures = format!(
        "bound in order of creation, threads have {} of their communication between {nodes} nodes, mapped by {policy} {}",
        percent(bound.remote),
        percent(best.remote)
    );
    if let (Some(today), Some(then)) = (bound.local, best.local) {
        figures += &format!(
            "; their first touch makes {} and {} of the accesses beyond private caches local",
            percent(today),
            percent(then)
        );
    }
    figures
}

/// Removing false sharing in the source is better than any mapping.
fn false_sharing(evidence: &Evidence<'_>) -> Option<String> {
    let share = evidence.sharing.false_share?;
    let most = evidence.sharing.memory.first()?;
    let applies = evidence.communication.layer == Layer::WriteRead && share >= FALSE_SHARE;
    applies.then(|| {
        format!(
            "{} of it is false sharing, most of it in `{}`: give each thread lines of its own first",
            percent(share),
            most.label(evidence.profile)
        )
    })
}
