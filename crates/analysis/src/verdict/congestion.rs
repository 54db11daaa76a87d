//! Congestion-aware mapping: whether a policy that spreads threads relieves the busiest node.
//!
//! A node is busy in two ways: its threads communicate, and its memory serves accesses to its pages. Both are computed
//! for every thread policy (pages by first touch, so they move with the threads), and either may be relieved.

use numaloc_model::number;

use super::{
    CONCURRENT, CONGESTED, Evidence, Likelihood, Measure, RELIEF, REMOTE_GAIN, Verdict, Ways,
    percent,
};
use crate::outlook::Outlook;

pub(super) fn verdict(evidence: &Evidence<'_>, ways: &Ways, mapping: &Verdict) -> Verdict {
    let by_communication = communication(evidence, ways, mapping);
    if by_communication.likelihood == Likelihood::Likely {
        return by_communication;
    }
    match memory(evidence, ways, mapping) {
        Some(by_memory) => by_memory,
        None => by_communication,
    }
}

/// The way to run without this verdict: the recommended mapping, or threads bound in order.
fn base<'a>(ways: &'a Ways, mapping: &Verdict) -> &'a Outlook {
    let chosen = mapping.recommended.as_ref();
    let base = ways.mapped.iter().find(|way| Some(&way.way) == chosen);
    base.unwrap_or(&ways.bound)
}

/// The verdict by accesses that the nodes' memory serves, if a policy relieves the busiest.
fn memory(evidence: &Evidence<'_>, ways: &Ways, mapping: &Verdict) -> Option<Verdict> {
    if evidence.assignment.homes.len() < 2 || evidence.pages_do_not_matter().is_some() {
        return None;
    }
    let base = base(ways, mapping);
    let (today, local) = (base.controller?, base.local?);
    let most = RELIEF * today.min(ways.bound.controller?);
    let relief = |way: &&Outlook| {
        way.controller.is_some_and(|then| then <= most)
            && way.local.is_some_and(|then| local - then < REMOTE_GAIN)
    };
    let load = |way: &Outlook| way.controller.unwrap_or(f64::MAX);
    let relieving = ways.mapped.iter().filter(relief);
    let best = relieving.min_by(|a, b| load(a).total_cmp(&load(b)))?;
    let policy = best.way.policy().unwrap_or_default();
    let figures = format!(
        "with {} the busiest node's memory answers {} times the mean of the accesses beyond private caches, with {} {} \
         ({} instead of {} of them local)",
        base.way.words(),
        number::fixed(today, 2),
        best.way.words(),
        number::fixed(load(best), 2),
        percent(best.local.unwrap_or(0.0)),
        percent(local)
    );
    let verdict = |likelihood, reason| Verdict::plain(Measure::CongestionAware, likelihood, reason);
    if let Some(how) = evidence.handed_out() {
        let reason = format!(
            "{figures}, but {how}: which node is busy depends on which threads get the work"
        );
        return Some(verdict(Likelihood::CannotTell, reason));
    }
    if today < 1.0 + (CONGESTED - 1.0) / 2.0 {
        return None;
    }
    if today < CONGESTED {
        return Some(verdict(Likelihood::CannotTell, figures));
    }
    Some(Verdict {
        action: Some(format!(
            "Spread the threads whose pages one node would hold (--threads {policy})"
        )),
        recommended: Some(best.way.clone()),
        ..verdict(Likelihood::Likely, figures)
    })
}

/// The verdict by the communication of the nodes' threads.
fn communication(evidence: &Evidence<'_>, ways: &Ways, mapping: &Verdict) -> Verdict {
    let verdict = |likelihood, reason| Verdict::plain(Measure::CongestionAware, likelihood, reason);
    let c = evidence.communication;
    let Some(concurrency) = c
        .concurrency
        .filter(|_| evidence.assignment.homes.len() > 1)
    else {
        let reason = "no communication between nodes, so no congestion";
        return verdict(Likelihood::Unlikely, reason.to_owned());
    };
    if evidence.communicates_too_little() {
        let reason = format!("{}: no congestion", evidence.volume());
        return verdict(Likelihood::Unlikely, reason);
    }
    let k = evidence.concurrency.k;
    let together = if k == 1 {
        format!(
            "{} of the threads communicate at the same time",
            percent(concurrency)
        )
    } else {
        format!(
            "in a cluster of concurrent communication ({k} in the run) {} of the threads take part",
            percent(concurrency)
        )
    };
    if concurrency < CONCURRENT / 2.0 {
        let reason = format!("{together}: few communicate at the same time");
        return verdict(Likelihood::Unlikely, reason);
    }
    let base = base(ways, mapping);
    let load = |way: &Outlook| way.busiest.unwrap_or(1.0);
    let today = format!(
        "the busiest node has {} times the mean communication with {}",
        number::fixed(load(base), 2),
        base.way.words()
    );
    if load(base) < 1.0 + (CONGESTED - 1.0) / 2.0 {
        let reason = format!("{together}, but {today}: it is already spread");
        return verdict(Likelihood::Unlikely, reason);
    }
    // Only policies that also relieve the busiest node of the present mapping, at little cost in locality.
    let most = RELIEF * load(base).min(load(&ways.bound));
    let acceptable = |way: &&Outlook| load(way) <= most && way.remote - base.remote < REMOTE_GAIN;
    let lightest = |ways: &mut dyn Iterator<Item = &Outlook>| {
        ways.min_by(|a, b| load(a).total_cmp(&load(b))).cloned()
    };
    let Some(best) = lightest(&mut ways.mapped.iter().filter(acceptable)) else {
        let tried = lightest(&mut ways.mapped.iter().filter(|way| way.way != base.way));
        let tried = tried.map_or_else(String::new, |way| {
            format!(
                " ({}: {}, with {} instead of {} of the communication between nodes)",
                way.way.words(),
                number::fixed(load(&way), 2),
                percent(way.remote),
                percent(base.remote)
            )
        });
        let reason = format!("{together}, and {today}, but no policy tried relieves it{tried}");
        return verdict(Likelihood::Unlikely, reason);
    };
    let policy = best.way.policy().unwrap_or_default();
    let relief = format!(
        "{today}, {} with {}",
        number::fixed(load(&best), 2),
        best.way.words()
    );
    if evidence.communicates_enough() && concurrency >= CONCURRENT && load(base) >= CONGESTED {
        Verdict {
            action: Some(format!(
                "Spread concurrent communication over the nodes (--threads {policy})"
            )),
            recommended: Some(best.way.clone()),
            ..verdict(Likelihood::Likely, format!("{together}, and {relief}"))
        }
    } else {
        verdict(Likelihood::CannotTell, format!("{together}; {relief}"))
    }
}
